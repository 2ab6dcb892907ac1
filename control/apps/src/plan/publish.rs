//! The publication of an app's status and entry: one write at a time, always of the newest state.

use std::collections::BTreeSet;

use dormouse_autoscaler::kpa::Activity;
use dormouse_cluster::{Key, Mode, State};
use dormouse_fleet::{Backend, Boottime};

use crate::action::{Action, Entry, Failure, Status};
use crate::admission::PODS_LIMITED;
use crate::member::{Exposure, Listing, Member};
use crate::record::AppRecord;

/// Publishes the status and the entry if they have changed and no write is in progress.
pub(super) fn publish(record: &mut AppRecord, now: Boottime, actions: &mut Vec<Action>) {
    if record.published.in_progress.is_some() {
        return;
    }
    let Some(app) = record.app.clone() else {
        return withdraw(record, actions);
    };
    if record.published.retry_at.is_some_and(|at| at > now) {
        return;
    }
    record.published.retry_at = None;
    let (status, listing) = (status(record), listing(record));
    let same = record
        .published
        .entry
        .as_ref()
        .is_some_and(|known| same_routing(known, &listing.entry));
    // What removes targets of the split before waits for a newer entry, also if nodes do not get the split.
    let same = same && record.published.split == listing.split;
    if same && record.published.status.as_ref() == Some(&status) {
        return;
    }
    let listing = (!same).then_some(listing);
    for key in listing.iter().flat_map(|listing| &listing.pods) {
        if let Some(member) = record.members.get_mut(key) {
            member.exposure = Exposure::Listed;
        }
    }
    let entry = listing.as_ref().map(|listing| listing.entry.clone());
    record.published.in_progress = Some((status.clone(), listing));
    actions.push(Action::Publish {
        vip: record.vip,
        app,
        status,
        entry,
    });
}

fn withdraw(record: &mut AppRecord, actions: &mut Vec<Action>) {
    record.published.retry_at = None;
    if let Some(version) = record
        .deleted_at
        .filter(|version| *version > record.published.version)
    {
        record.published.status = None;
        actions.push(Action::Withdraw {
            vip: record.vip,
            version,
        });
        written(record, version, None);
    }
}

/// Whether two entries differ at most in how soon, and with which acknowledgement, nodes get them.
pub(crate) fn same_routing(known: &Entry, entry: &Entry) -> bool {
    let Entry {
        mode,
        backends,
        asleep,
        port,
        split,
        settle: _,
        idle: _,
    } = known;
    (*mode, *asleep, *port) == (entry.mode, entry.asleep, entry.port)
        && *backends == entry.backends
        && *split == entry.split
}

/// Records that an entry was published as `version`; without a listing, that the VIP is gone.
pub(crate) fn written(record: &mut AppRecord, version: u64, listing: Option<Listing>) {
    let split = listing.as_ref().map(|listing| listing.split.clone());
    record.published.split = split.unwrap_or_default();
    let (entry, pods) = listing.map(|listing| (listing.entry, listing.pods)).unzip();
    let pods = pods.unwrap_or_default();
    for (key, member) in &mut record.members {
        if member.exposure == Exposure::Listed && !pods.contains(key) {
            member.exposure = Exposure::Unlisted(version);
        }
    }
    let serves = entry
        .as_ref()
        .is_some_and(|entry: &Entry| entry.mode == Mode::Serve);
    record.published.proxy_since = if serves {
        None
    } else {
        record.published.proxy_since.or(Some(version))
    };
    record.published.version = version;
    record.published.entry = entry;
}

/// The app's state, and the numbers of ready and wanted pods.
pub(crate) fn state(record: &AppRecord) -> (State, u32, u32) {
    let ready = record.ready().unsigned_abs();
    let wanted = u32::try_from(record.wanted()).unwrap_or(u32::MAX);
    let state = match (ready, wanted) {
        (0, 0) => State::Asleep,
        (0, _) => State::Waking,
        _ => State::Awake,
    };
    (state, ready, wanted)
}

/// The app's status.
pub(crate) fn status(record: &AppRecord) -> Status {
    let (state, ready, wanted) = state(record);
    Status {
        state,
        mode: record.mode(),
        ready,
        wanted,
        last_wake: record.last_wake,
        failure: failure(record).or_else(|| ignored(record)),
        generation: record.app.as_ref().and_then(|app| app.metadata.generation),
        template_hash: record.template.clone(),
        ready_revision: record.rollout.ready_revision,
        pod_failures: record.backoff.stored().filter(|_| wanted > 0),
        progress: record.progress(),
    }
}

/// Why the app has fewer ready pods than are wanted, or why one of them does not answer.
pub(crate) fn failure(record: &AppRecord) -> Option<Failure> {
    let (_, ready, wanted) = state(record);
    if ready >= wanted && record.is_rolled_out() {
        return unresponsive(record).or_else(|| held(record));
    }
    record
        .backoff
        .in_a_row()
        .or_else(|| waiting(record))
        .or_else(|| unresponsive(record))
        .or_else(|| record.backoff.last.clone())
        .or_else(|| held(record))
}

/// An annotation is ignored, as it is not valid. The API refuses such an app: another client of the store wrote it.
fn ignored(record: &AppRecord) -> Option<Failure> {
    let fault = record.ignored.first()?;
    let message = format!("ignored the annotation {fault}");
    Some(Failure::new("InvalidAnnotation", message))
}

/// A pod that exists is not ready.
pub(super) fn waiting(record: &AppRecord) -> Option<Failure> {
    let mut live = record.members.values().filter(|member| member.is_live());
    live.find_map(|member| member.seen.as_ref()?.waiting.clone())
}

/// A ready pod failed the last request that an activator forwarded to it.
pub(crate) fn unresponsive(record: &AppRecord) -> Option<Failure> {
    let mut ready = record
        .members
        .values()
        .filter(|member| member.address().is_some());
    Some(
        ready
            .find_map(|member| member.fault.as_ref())?
            .failure
            .clone(),
    )
}

fn held(record: &AppRecord) -> Option<Failure> {
    let held = record.held?;
    Some(Failure::new(PODS_LIMITED, held.message(record.want)))
}

/// The entry of a sleeping app.
pub(crate) fn asleep(port: u16) -> Entry {
    Entry {
        mode: Mode::Proxy,
        backends: Vec::new(),
        asleep: true,
        port,
        split: Vec::new(),
        settle: false,
        idle: false,
    }
}

/// The entry for the nodes, and the pods in it.
pub(crate) fn listing(record: &AppRecord) -> Listing {
    let mode = record.mode();
    let ready = record
        .members
        .iter()
        .filter(|(_, member)| mode == Mode::Serve && member.address().is_some());
    let pods: BTreeSet<Key> = ready.map(|(key, _)| key.clone()).collect();
    let backends = record.backends();
    // The activator selects the target that a packet wakes.
    let asleep = backends.is_empty() && record.split.is_empty();
    let backends = if mode == Mode::Serve {
        backends
    } else {
        Vec::new()
    };
    let removes = record
        .members
        .iter()
        .any(|(key, member)| match member.exposure {
            Exposure::Never => false,
            Exposure::Unlisted(version) => version > record.published.settled,
            Exposure::Listed => !pods.contains(key),
        });
    let entry = Entry {
        mode,
        backends: backends.into_iter().map(Backend::new).collect(),
        asleep,
        port: record.app.as_ref().map_or(0, |app| app.spec.port),
        // Nodes would select the target of each connection.
        split: if record.is_sticky() {
            Vec::new()
        } else {
            record.split.clone()
        },
        settle: removes,
        idle: is_idle(record),
    };
    Listing {
        entry,
        pods,
        split: record.split.clone(),
    }
}

/// Whether the app has no load, and none of the pods in its entry is lost.
fn is_idle(record: &AppRecord) -> bool {
    let lost = |member: &Member| member.exposure == Exposure::Listed && member.address().is_none();
    // Its own pods may have no load while others have that of its split.
    let is_split = !record.split.is_empty() || !record.published.split.is_empty();
    let is_inactive = record.kpa.activity == Activity::Inactive;
    is_inactive && !is_split && !record.members.values().any(lost)
}
