//! What is to be done for one app: the difference between what is wanted and what is there or under way. Pure, and
//! idempotent: planned again without news, it asks for nothing.

mod publish;

use dormouse_cluster::{App, Key, Mode, Object, events};
use dormouse_fleet::Boottime;

pub(crate) use publish::{listing, status, written};

use crate::action::{Action, Route};
use crate::member::{Exposure, Member};
use crate::pod::{self, Names};
use crate::slot::Slot;

/// Plans one app.
pub(crate) fn plan(slot: &mut Slot, now: Boottime, names: &mut Names) -> Vec<Action> {
    let mut actions = Vec::new();
    leave(slot, now, &mut actions);
    fill(slot, now, names, &mut actions);
    route(slot, &mut actions);
    publish::publish(slot, now, &mut actions);
    serving(slot, &mut actions);
    settle(slot, &mut actions);
    delete(slot, &mut actions);
    actions
}

/// Pods that failed, run something else than wanted, or are too many, are to go.
fn leave(slot: &mut Slot, now: Boottime, actions: &mut Vec<Action>) {
    let gone = slot.app.is_none();
    for (key, member) in &mut slot.members {
        let ended = member.seen.as_ref().and_then(|seen| seen.ended.clone());
        if let Some((reason, message)) = ended.filter(|_| !member.failed && !member.leaving) {
            member.failed = true;
            actions.extend(
                slot.app
                    .as_deref()
                    .map(|app| told(app, key, &reason, &message)),
            );
            slot.backoff.failed(now, reason, message);
        }
        let asked = member.seen.as_ref().is_some_and(|seen| seen.going);
        member.leaving |= gone || asked || member.failed || member.template != slot.template;
    }
    let wanted = usize::try_from(slot.want).unwrap_or(0);
    let surplus = slot.live().saturating_sub(wanted);
    let mut live: Vec<_> = slot
        .members
        .iter()
        .filter(|(_, member)| member.lives())
        .collect();
    live.sort_by_key(|(key, member)| {
        (
            member.address().is_some(),
            std::cmp::Reverse(member.created),
            (*key).clone(),
        )
    });
    let leaving: Vec<Key> = live
        .into_iter()
        .take(surplus)
        .map(|(key, _)| key.clone())
        .collect();
    for key in leaving {
        if let Some(member) = slot.members.get_mut(&key) {
            member.leaving = true;
        }
    }
}

fn told(app: &App, pod: &Key, reason: &str, message: &str) -> Action {
    let about = Box::new(events::reference(app));
    Action::Tell {
        about,
        reason: "PodFailed",
        message: format!("pod {pod}: {reason}: {message}"),
    }
}

/// Pods that are missing: those on their way out come back first, then new ones are made.
fn fill(slot: &mut Slot, now: Boottime, names: &mut Names, actions: &mut Vec<Action>) {
    let Some(app) = slot.app.clone() else { return };
    let wanted = usize::try_from(slot.want).unwrap_or(0);
    let mut missing = wanted.saturating_sub(slot.live());
    let template = &slot.template;
    let back = |member: &&mut Member| {
        let asked = member.seen.as_ref().is_some_and(|seen| seen.going);
        member.leaving
            && !member.deleting
            && !member.failed
            && !asked
            && member.template == *template
    };
    for member in slot.members.values_mut().filter(back).take(missing) {
        member.leaving = false;
        missing -= 1;
    }
    if slot.backoff.wait(now).is_some() {
        return;
    }
    for _ in 0..missing {
        let pod = pod::of(&app, slot.vip, names);
        slot.members
            .insert(pod.key(), Member::new(now, slot.template.clone()));
        actions.push(Action::Create {
            vip: slot.vip,
            pod: Box::new(pod),
        });
    }
}

/// The activator knows the pods that answer.
fn route(slot: &mut Slot, actions: &mut Vec<Action>) {
    let route = slot.app.as_ref().map(|app| Route {
        name: slot.key.to_string(),
        port: app.spec.port,
        container_concurrency: app.spec.scale.container_concurrency,
        timeout: app.spec.timeout(),
        backends: slot.backends(),
    });
    if route != slot.route {
        slot.route.clone_from(&route);
        actions.push(Action::Route {
            vip: slot.vip,
            route,
        });
    }
}

/// The activator knows whether clients may go straight to pods.
fn serving(slot: &mut Slot, actions: &mut Vec<Action>) {
    let direct = slot
        .published
        .entry
        .as_ref()
        .is_some_and(|entry| entry.mode == Mode::Serve);
    if direct != slot.direct {
        slot.direct = direct;
        actions.push(Action::Serving {
            vip: slot.vip,
            direct,
        });
    }
}

/// What waits for the nodes is waited for, one version at a time.
fn settle(slot: &mut Slot, actions: &mut Vec<Action>) {
    if slot.published.settling.is_some() {
        return;
    }
    let leaving = slot
        .members
        .values()
        .filter(|member| member.leaving)
        .filter_map(|member| match member.exposure {
            Exposure::Unlisted(version) => Some(version),
            _ => None,
        });
    // An app that is about to fall asleep must know that the activator is in the path everywhere.
    let idle = slot
        .published
        .proxy_since
        .filter(|_| !slot.serve && !slot.members.is_empty());
    let newest = leaving
        .chain(idle)
        .max()
        .filter(|version| *version > slot.published.settled);
    if let Some(version) = newest {
        slot.published.settling = Some(version);
        actions.push(Action::Settle {
            vip: slot.vip,
            version,
        });
    }
}

/// A pod goes once no node can send to it by any entry.
fn delete(slot: &mut Slot, actions: &mut Vec<Action>) {
    let settled = slot.published.settled;
    for (key, member) in &mut slot.members {
        let unused = match member.exposure {
            Exposure::Never => true,
            Exposure::Listed => false,
            Exposure::Unlisted(version) => version <= settled,
        };
        if member.leaving && unused && !member.deleting && member.seen.is_some() {
            member.deleting = true;
            actions.push(Action::Delete {
                vip: slot.vip,
                pod: key.clone(),
            });
        }
    }
}
