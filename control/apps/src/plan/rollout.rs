//! The change of an app's pods from one template to another: ready pods of earlier templates leave only for ready successors. Pure.

use std::cmp::Reverse;

use dormouse_cluster::Key;

use crate::member::Member;
use crate::record::AppRecord;

/// Divisor of the wanted pods: so many may be started in addition, rounded up. Kubernetes' `maxSurge`, 25%.
const SURGE_DIVISOR: usize = 4;

/// The numbers of pods that a plan aims at.
struct Aim {
    /// Pods of the app's template.
    current: usize,
    /// Ready pods of earlier templates: those that no ready pod of the app's template replaces yet.
    earlier: usize,
}

fn aim(record: &AppRecord) -> Aim {
    let wanted = record.wanted();
    let ready = |is_current| {
        let live = live(record, is_current);
        live.filter(|(_, member)| member.address().is_some())
            .count()
    };
    let earlier = ready(false).min(wanted.saturating_sub(ready(true)));
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

/// Marks the pods to drain that are surplus. Pods of earlier templates that are not ready are.
pub(super) fn drain(record: &mut AppRecord) {
    let aim = aim(record);
    let surplus: Vec<Key> = [(false, aim.earlier), (true, aim.current)]
        .into_iter()
        .flat_map(|(is_current, kept)| surplus(record, is_current, kept))
        .collect();
    for key in surplus {
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

/// The number of pods of the app's template that are to be added. A rollout that is paused adds none but those that are wanted
/// besides pods of earlier templates.
pub(super) fn missing(record: &AppRecord) -> usize {
    let live = live(record, true).count();
    let aim = aim(record);
    let paused = record.app.as_ref().is_some_and(|app| app.spec.paused);
    let most = if paused {
        record.wanted().saturating_sub(aim.earlier)
    } else {
        aim.current
    };
    most.saturating_sub(live)
}
