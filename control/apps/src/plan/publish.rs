//! What nodes and people are told of one app, and when.

use std::collections::BTreeSet;

use dormouse_cluster::{Key, Mode, State};
use dormouse_fleet::{Backend, Boottime};

use crate::action::{Action, Entry, Status};
use crate::member::{Exposure, Listing};
use crate::slot::Slot;

/// Nodes and people know where the VIP leads. One write at a time; the newest wins.
pub(super) fn publish(slot: &mut Slot, now: Boottime, actions: &mut Vec<Action>) {
    if slot.published.under_way.is_some() {
        return;
    }
    if slot.app.is_none() {
        return bury(slot, actions);
    }
    if slot.published.retry_at.is_some_and(|at| at > now) {
        return;
    }
    slot.published.retry_at = None;
    let (status, listing) = (status(slot), listing(slot));
    let same = slot
        .published
        .entry
        .as_ref()
        .is_some_and(|known| leads_alike(known, &listing.entry));
    if same && slot.published.status.as_ref() == Some(&status) {
        return;
    }
    let listing = (!same).then_some(listing);
    for key in listing.iter().flat_map(|listing| &listing.pods) {
        if let Some(member) = slot.members.get_mut(key) {
            member.exposure = Exposure::Listed;
        }
    }
    let entry = listing.as_ref().map(|listing| listing.entry.clone());
    slot.published.under_way = Some((status.clone(), listing));
    actions.push(Action::Publish {
        vip: slot.vip,
        app: slot.key.clone(),
        status,
        entry,
    });
}

fn bury(slot: &mut Slot, actions: &mut Vec<Action>) {
    slot.published.retry_at = None;
    if let Some(version) = slot
        .buried_at
        .filter(|version| *version > slot.published.version)
    {
        slot.published.status = None;
        actions.push(Action::Bury {
            vip: slot.vip,
            version,
        });
        written(slot, version, None);
    }
}

/// The flag is for the nodes' acknowledgement only: it is no news by itself.
fn leads_alike(known: &Entry, entry: &Entry) -> bool {
    Entry {
        settle: false,
        ..known.clone()
    } == Entry {
        settle: false,
        ..entry.clone()
    }
}

/// An entry was published as this version; none: that the VIP leads nowhere.
pub(crate) fn written(slot: &mut Slot, version: u64, listing: Option<Listing>) {
    let (entry, pods) = listing.map(|listing| (listing.entry, listing.pods)).unzip();
    let pods = pods.unwrap_or_default();
    for (key, member) in &mut slot.members {
        if member.exposure == Exposure::Listed && !pods.contains(key) {
            member.exposure = Exposure::Unlisted(version);
        }
    }
    let serves = entry
        .as_ref()
        .is_some_and(|entry: &Entry| entry.mode == Mode::Serve);
    slot.published.proxy_since = if serves {
        None
    } else {
        slot.published.proxy_since.or(Some(version))
    };
    slot.published.version = version;
    slot.published.entry = entry;
}

/// What people are told.
pub(crate) fn status(slot: &Slot) -> Status {
    let ready = slot.ready().unsigned_abs();
    let wanted = slot.want.max(0).unsigned_abs();
    let state = match (ready, wanted) {
        (0, 0) => State::Asleep,
        (0, _) => State::Waking,
        _ => State::Awake,
    };
    let trouble = slot
        .backoff
        .last
        .clone()
        .filter(|_| ready < wanted)
        .map(|(reason, message)| match slot.backoff.failures() {
            0 | 1 => (reason, message),
            failures => (
                "CrashLoopBackOff".to_owned(),
                format!("{failures} pods failed in a row, the last: {reason}: {message}"),
            ),
        });
    Status {
        state,
        mode: slot.mode(),
        ready,
        wanted,
        last_wake: slot.last_wake,
        trouble,
    }
}

/// What nodes are told, and which pods that names.
pub(crate) fn listing(slot: &Slot) -> Listing {
    let mode = slot.mode();
    let ready = slot
        .members
        .iter()
        .filter(|(_, member)| mode == Mode::Serve && member.address().is_some());
    let pods: BTreeSet<Key> = ready.map(|(key, _)| key.clone()).collect();
    let backends = slot.backends();
    let asleep = backends.is_empty();
    let backends = if mode == Mode::Serve {
        backends
    } else {
        Vec::new()
    };
    let removes = slot
        .members
        .iter()
        .any(|(key, member)| match member.exposure {
            Exposure::Never => false,
            Exposure::Unlisted(version) => version > slot.published.settled,
            Exposure::Listed => !pods.contains(key),
        });
    let entry = Entry {
        mode,
        backends: backends.into_iter().map(Backend::new).collect(),
        asleep,
        port: slot.app.as_ref().map_or(0, |app| app.spec.port),
        settle: removes,
    };
    Listing { entry, pods }
}
