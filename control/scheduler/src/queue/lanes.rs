//! The places of pods in the queue, each in its order.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::PodKey;
use k8s_openapi::jiff::Timestamp;

use super::entry::{BackoffRank, Location, Rank};

/// A part of the queue; kube-scheduler's names of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Pods that are next.
    Active,
    /// Pods that are tried again after a time.
    Backoff,
    /// Pods that wait for a change of the cluster.
    Unschedulable,
    /// Pods that may not enter the queue.
    Gated,
}

/// The number of pods in each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the lanes")]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

/// All lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    active: BTreeMap<Rank, PodKey>,
    backoff: BTreeMap<BackoffRank, PodKey>,
    error_backoff: BTreeMap<BackoffRank, PodKey>,
    unschedulable: BTreeSet<PodKey>,
    gated: BTreeSet<PodKey>,
}

impl Lanes {
    pub(super) fn insert(&mut self, key: &PodKey, location: &Location) {
        let key = key.clone();
        match location {
            Location::Active(rank) => drop(self.active.insert(*rank, key)),
            Location::Backoff(rank) => drop(self.backoff.insert(*rank, key)),
            Location::ErrorBackoff(rank) => drop(self.error_backoff.insert(*rank, key)),
            Location::Unschedulable => drop(self.unschedulable.insert(key)),
            Location::Gated => drop(self.gated.insert(key)),
            Location::InFlight(_) => {}
        }
    }

    pub(super) fn remove(&mut self, key: &PodKey, location: &Location) {
        match location {
            Location::Active(rank) => drop(self.active.remove(rank)),
            Location::Backoff(rank) => drop(self.backoff.remove(rank)),
            Location::ErrorBackoff(rank) => drop(self.error_backoff.remove(rank)),
            Location::Unschedulable => drop(self.unschedulable.remove(key)),
            Location::Gated => drop(self.gated.remove(key)),
            Location::InFlight(_) => {}
        }
    }

    pub(super) fn first_active(&self) -> Option<PodKey> {
        self.active.values().next().cloned()
    }

    /// The first pod that is backing off after a rejection.
    pub(super) fn first_backoff(&self) -> Option<PodKey> {
        self.backoff.values().next().cloned()
    }

    /// A pod whose backoff is over.
    pub(super) fn first_expired(&self, now: Timestamp) -> Option<PodKey> {
        let lanes = [&self.backoff, &self.error_backoff].into_iter();
        let mut first = lanes.filter_map(BTreeMap::first_key_value);
        let expired = first.find(|((ends, _), _)| *ends <= now.as_second());
        expired.map(|(_, key)| key.clone())
    }

    /// The pods that wait for a change.
    pub(super) fn unschedulable(&self) -> impl Iterator<Item = &PodKey> {
        self.unschedulable.iter()
    }

    pub(super) fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: self.unschedulable.len(),
            gated: self.gated.len(),
        }
    }
}
