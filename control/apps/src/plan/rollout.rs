//! The change of an app's pods from one template to another: ready pods of earlier templates leave only for ready successors. Pure.

use std::cmp::Reverse;

use dormouse_cluster::Key;
use dormouse_cluster::revision::key_of;

use crate::action::Action;
use crate::member::Member;
use crate::record::AppRecord;

/// Divisor of the wanted pods: so many may be started in addition, rounded up. Kubernetes' `maxSurge`, 25%.
const SURGE_DIVISOR: usize = 4;

/// The numbers of pods that a plan aims at.
struct Aim {
    /// Pods of the app's template.
    current: usize,
    /// Pods of earlier templates: while the app falls back to one, all; else the ready ones that no ready pod of the app's template
    /// replaces yet.
    earlier: usize,
}

fn aim(record: &AppRecord) -> Aim {
    let wanted = record.wanted();
    let (current, earlier) = record.ready_by_template();
    let earlier = if record.falls_back() {
        wanted
    } else {
        earlier.min(wanted.saturating_sub(current))
    };
    let surge = wanted.div_ceil(SURGE_DIVISOR);
    Aim {
        current: wanted.min(wanted + surge - earlier),
        earlier,
    }
}

/// The live pods of the app's template, or of earlier ones.
fn live(record: &AppRecord, is_current: bool) -> impl Iterator<Item = (&Key, &Member)> {
    let all = record.members.iter();
    all.filter(move |(_, member)| {
        member.is_live() && (member.template == record.template) == is_current
    })
}

/// Marks the pods to drain that are surplus. Pods of earlier templates that are not ready are, unless the app falls back to theirs.
pub(super) fn drain(record: &mut AppRecord) {
    let is_useless = |(_, member): &(&Key, &Member)| {
        member.address().is_none() && !record.falls_back_to(&member.template)
    };
    let useless = live(record, false).filter(is_useless);
    let useless: Vec<Key> = useless.map(|(key, _)| key.clone()).collect();
    mark(record, useless);
    let aim = aim(record);
    let surplus: Vec<Key> = [(false, aim.earlier), (true, aim.current)]
        .into_iter()
        .flat_map(|(is_current, kept)| surplus(record, is_current, kept))
        .collect();
    mark(record, surplus);
}

fn mark(record: &mut AppRecord, drained: Vec<Key>) {
    for key in drained {
        if let Some(member) = record.members.get_mut(&key) {
            member.draining = true;
        }
    }
}

/// The live pods beyond the number of those that stay: first those that are not ready, then the newest.
fn surplus(record: &AppRecord, is_current: bool, kept: usize) -> Vec<Key> {
    let mut live: Vec<_> = live(record, is_current).collect();
    live.sort_by_key(|(key, member)| {
        (
            member.address().is_some(),
            Reverse(member.created),
            (*key).clone(),
        )
    });
    let surplus = live.len().saturating_sub(kept);
    live.truncate(surplus);
    live.into_iter().map(|(key, _)| key.clone()).collect()
}

/// Whether a rollout that is held lacks pods of the app's template for that: those that may be added while pods of earlier templates
/// serve.
pub(crate) fn is_short(record: &AppRecord) -> bool {
    let aim = aim(record);
    aim.earlier > 0 && live(record, true).count() < aim.current
}

/// The number of pods of the app's template that are to be added. A rollout that is held adds none but those that are wanted
/// besides pods of earlier templates.
pub(super) fn missing(record: &AppRecord) -> usize {
    let live = live(record, true).count();
    let aim = aim(record);
    let holds = record.app.as_ref().is_some_and(|app| app.holds_rollout());
    let is_held = holds || record.awaits_leaving();
    let most = if is_held {
        record.wanted().saturating_sub(aim.earlier)
    } else {
        aim.current
    };
    most.saturating_sub(live)
}

/// The number of pods that are to be added of the template to which the app falls back.
pub(super) fn missing_earlier(record: &AppRecord) -> usize {
    if !record.falls_back() {
        return 0;
    }
    let live = live(record, false).count();
    record.wanted().saturating_sub(live)
}

/// Reads the revision to which the app falls back, if pods of it are missing and its template is not known.
pub(super) fn read(record: &mut AppRecord) -> Option<Action> {
    let missing = missing_earlier(record);
    let number = record.rollout.to_read().filter(|_| missing > 0)?;
    record.rollout.is_read = true;
    Some(Action::ReadRevision {
        vip: record.vip,
        revision: key_of(&record.key, number),
    })
}
