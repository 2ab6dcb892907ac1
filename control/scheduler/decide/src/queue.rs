//! The queue: the order of pods, and which change of the cluster may help a pod that was rejected.

mod events;
mod hints;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

pub use events::{Change, Event, VolumeChange, VolumeKind, events};

use crate::Snapshot;
use crate::plugins::{Cycle, scheduling_gates};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::status::{Plugin, Status};

/// The place of a pod in the queue: the smallest is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    priority: Reverse<i32>,
    queued_at: Timestamp,
}

impl Place {
    /// The place of a pod that was queued at a time.
    pub fn new(priority: i32, queued_at: Timestamp) -> Self {
        Self {
            priority: Reverse(priority),
            queued_at,
        }
    }
}

/// What a change does to a pod that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// It stays.
    Skip,
    /// It is tried again, once its backoff is over.
    QueueAfterBackoff,
}

/// The verdict that keeps a pod out of the queue, until the pod changes.
pub fn gate(profile: &Profile, pod: &Pod) -> Option<Status> {
    scheduling_gates::pre_enqueue(pod).filter(|_| !profile.pre_enqueue.is_empty())
}

/// What an event of a change does to a pod that `rejectors` rejected.
pub fn hint(
    (profile, snapshot): (&Profile, &Snapshot),
    pod: &Pod,
    rejectors: &BTreeSet<Plugin>,
    event: Event,
    change: Change<'_>,
) -> Hint {
    let cycle = Cycle {
        pod,
        snapshot,
        profile,
    };
    let helps = |plugin: &Plugin| hints::may_help(*plugin, cycle, event, change);
    // A pod that no plugin rejected failed for another reason, and any event will do.
    if rejectors.is_empty() || rejectors.iter().any(helps) {
        Hint::QueueAfterBackoff
    } else {
        Hint::Skip
    }
}

#[cfg(test)]
mod tests;
