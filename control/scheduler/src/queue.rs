//! The scheduling queue: kube-scheduler's activeQ, backoffQ and unschedulable pods. Pure: time is an argument.
//!
//! Each pod is in exactly one place ([`Lane`], or in flight). Reading order: a pod and its counts ([`entry`]), the places
//! ([`lanes`]), the changes that may help ([`wake`]), those that pods in flight have missed ([`in_flight`]), and the queue itself, here.

mod entry;
mod in_flight;
mod lanes;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_scheduler_decide::{Plugin, Pod, PodKey};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::map::Map;
pub use entry::{Attempted, Popped, Waiting};
use entry::{Entry, Location};
use in_flight::InFlight;
use lanes::Lanes;
pub use lanes::{Lane, Lengths};
use wake::helpful;
pub use wake::{Happened, Judge};

/// Time after which an unschedulable pod is tried again without an event.
pub const UNSCHEDULABLE_MAX: SignedDuration = SignedDuration::from_mins(5);
/// Interval in which unschedulable pods are looked through for that.
pub const FLUSH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// How many pods came to a lane, by the reason.
pub type Moves = BTreeMap<(Lane, String), u64>;

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    entries: Map<PodKey, Entry>,
    lanes: Lanes,
    in_flight: InFlight,
    /// The last number that was given to a pod or an attempt.
    sequence: u64,
    flushed_at: Option<Timestamp>,
    moves: Moves,
}

impl Queue {
    /// Adds a pod, or replaces it. `is_changed` is whether a replaced one has another spec: then it is tried again whatever
    /// the plugins answer.
    pub fn set(&mut self, now: Timestamp, judge: &impl Judge, waiting: Waiting, is_changed: bool) {
        let key = waiting.pod.key().clone();
        let Some(entry) = self.entries.get_mut(&key) else {
            let entry = Entry::new(waiting, now, self.next());
            self.enqueue(now, judge, entry, "UnschedulablePodAdd");
            return;
        };
        let old = std::mem::replace(&mut entry.waiting, waiting).pod;
        let happened = Happened::Pod {
            old: Some(old),
            new: Some(entry.waiting.pod.clone()),
        };
        match entry.location {
            Location::InFlight(_) => {
                entry.is_changed |= is_changed;
                self.in_flight.record(happened);
            }
            Location::Unschedulable | Location::Gated => {
                let label = helpful(judge, entry, &happened, &happened.events());
                let label =
                    label.or_else(|| is_changed.then(|| "UnschedulablePodUpdate".to_owned()));
                if let Some(label) = label
                    && let Some(entry) = self.take(&key)
                {
                    self.enqueue(now, judge, entry, &label);
                }
            }
            // The priority may have changed.
            Location::Active(_) | Location::Backoff(_) | Location::ErrorBackoff(_) => {
                if let Some(entry) = self.take(&key) {
                    self.place_again(entry);
                }
            }
        }
    }

    /// Replaces a pod by itself with another nomination, which is no event.
    pub fn renominated(&mut self, pod: &Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(pod.key()) {
            entry.waiting.pod = Arc::clone(pod);
        }
    }

    /// Removes a pod that needs no node anymore.
    pub fn remove(&mut self, key: &PodKey) -> Option<Waiting> {
        let entry = self.take(key)?;
        if let Location::InFlight(ticket) = entry.location {
            self.in_flight.end(ticket);
        }
        Some(entry.waiting)
    }

    /// The next pod, which is in flight from then on: until [`Queue::placed`], [`Queue::reject`] or [`Queue::fail`].
    /// Without another one, a pod that is backing off is taken early, unless its attempt had failed.
    pub fn pop(&mut self, now: Timestamp) -> Option<Popped> {
        self.end_backoffs(now);
        let key = self
            .lanes
            .first_active()
            .or_else(|| self.lanes.first_backoff())?;
        let mut entry = self.take(&key)?;
        let ticket = self.next();
        entry.attempted.count(now);
        entry.is_changed = false;
        entry.location = Location::InFlight(ticket);
        let popped = Popped {
            ticket,
            waiting: entry.waiting.clone(),
            attempted: entry.attempted,
        };
        self.in_flight.begin(ticket);
        self.entries.insert(key, entry);
        Some(popped)
    }

    /// Whether an attempt has not ended, and its pod was not removed.
    pub fn is_in_flight(&self, popped: &Popped) -> bool {
        let entry = self.entries.get(popped.waiting.pod.key());
        entry.is_some_and(|entry| entry.location == Location::InFlight(popped.ticket))
    }

    /// A node was found for a pod in flight, which leaves the queue.
    pub fn placed(&mut self, popped: &Popped) {
        self.land(popped);
    }

    /// Plugins rejected a pod in flight: it waits for a change that may help, unless there was one meanwhile. Returns
    /// whether it is in the queue: a pod that was removed meanwhile is not.
    pub fn reject(
        &mut self,
        now: Timestamp,
        judge: &impl Judge,
        popped: &Popped,
        rejectors: BTreeSet<Plugin>,
    ) -> bool {
        let missed = self.in_flight.missed(popped.ticket);
        let Some(mut entry) = self.land(popped) else {
            return false;
        };
        entry.rejected(now, rejectors);
        let helps = match missed {
            // Some were dropped.
            None => true,
            _ if entry.is_changed || entry.rejectors.is_empty() => true,
            Some(missed) => missed
                .iter()
                .any(|one| helpful(judge, &entry, one, &one.events()).is_some()),
        };
        if helps {
            self.enqueue(now, judge, entry, "ScheduleAttemptFailure");
        } else {
            self.park(entry, "ScheduleAttemptFailure");
        }
        true
    }

    /// The attempt for a pod in flight failed: it is tried again after its backoff.
    pub fn fail(&mut self, now: Timestamp, judge: &impl Judge, popped: &Popped) -> bool {
        let Some(mut entry) = self.land(popped) else {
            return false;
        };
        entry.failed(now);
        self.enqueue(now, judge, entry, "ScheduleAttemptFailure");
        true
    }

    /// Puts a pod back that had left the queue by [`Queue::placed`], and whose binding failed.
    pub fn put_back(&mut self, now: Timestamp, judge: &impl Judge, popped: Popped) {
        if self.entries.contains_key(popped.waiting.pod.key()) {
            return;
        }
        let mut entry = Entry::new(popped.waiting, now, self.next());
        entry.attempted = popped.attempted;
        entry.failed(now);
        self.enqueue(now, judge, entry, "ScheduleAttemptFailure");
    }

    /// Wakes the pods that a change may help. Pods in flight are asked at the end of their attempt.
    pub fn happened(&mut self, now: Timestamp, judge: &impl Judge, happened: Happened) {
        let events = happened.events();
        if events.is_empty() {
            return;
        }
        let mut woken = Vec::new();
        for key in self.lanes.unschedulable() {
            let entry = self.entries.get(key);
            if let Some(label) = entry.and_then(|entry| helpful(judge, entry, &happened, &events)) {
                woken.push((key.clone(), label));
            }
        }
        for (key, label) in woken {
            if let Some(entry) = self.take(&key) {
                self.enqueue(now, judge, entry, &label);
            }
        }
        self.in_flight.record(happened);
    }

    /// Tries pods again that have been unschedulable for [`UNSCHEDULABLE_MAX`]; looks for them once in [`FLUSH_INTERVAL`].
    pub fn flush(&mut self, now: Timestamp, judge: &impl Judge) {
        self.end_backoffs(now);
        let last = *self.flushed_at.get_or_insert(now);
        if now.duration_since(last) < FLUSH_INTERVAL {
            return;
        }
        self.flushed_at = Some(now);
        let is_old = |key: &&PodKey| {
            let entry = self.entries.get(*key);
            entry.is_some_and(|one| now.duration_since(one.queued_at) > UNSCHEDULABLE_MAX)
        };
        let old: Vec<_> = self.lanes.unschedulable().filter(is_old).cloned().collect();
        for key in old {
            if let Some(entry) = self.take(&key) {
                self.enqueue(now, judge, entry, "UnschedulableTimeout");
            }
        }
    }

    /// The pods in each lane.
    pub fn lengths(&self) -> Lengths {
        self.lanes.lengths()
    }

    /// The lane of a pod, or `None` while it is in flight, and the attempts and rejectors.
    pub fn find(&self, key: &PodKey) -> Option<(Option<Lane>, Attempted, &BTreeSet<Plugin>)> {
        let entry = self.entries.get(key)?;
        Some((entry.location.lane(), entry.attempted, &entry.rejectors))
    }

    /// The pods that came to lanes since the last call.
    pub fn take_moves(&mut self) -> Moves {
        std::mem::take(&mut self.moves)
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Takes a pod out of wherever it is.
    fn take(&mut self, key: &PodKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.lanes.remove(key, &entry.location);
        Some(entry)
    }

    /// Ends an attempt; `None` if the pod was removed meanwhile.
    fn land(&mut self, popped: &Popped) -> Option<Entry> {
        let key = popped.waiting.pod.key();
        let entry = self.entries.get(key)?;
        if entry.location != Location::InFlight(popped.ticket) {
            return None;
        }
        self.in_flight.end(popped.ticket);
        self.take(key)
    }

    /// Puts a pod where it is tried again: into the active queue once its backoff is over.
    fn enqueue(&mut self, now: Timestamp, judge: &impl Judge, mut entry: Entry, label: &str) {
        entry.location = if judge.is_gated(&entry.waiting) {
            Location::Gated
        } else if !entry.is_backing_off(now) {
            Location::Active(entry.rank())
        } else if entry.rejectors.is_empty() {
            Location::ErrorBackoff(entry.backoff_rank())
        } else {
            Location::Backoff(entry.backoff_rank())
        };
        self.insert(entry, label);
    }

    /// Puts a pod among the unschedulable ones.
    fn park(&mut self, mut entry: Entry, label: &str) {
        entry.location = Location::Unschedulable;
        self.insert(entry, label);
    }

    /// Puts a pod into the lane that it was in, at the rank that it has now.
    fn place_again(&mut self, mut entry: Entry) {
        entry.location = match entry.location {
            Location::Active(_) => Location::Active(entry.rank()),
            Location::Backoff(_) => Location::Backoff(entry.backoff_rank()),
            Location::ErrorBackoff(_) => Location::ErrorBackoff(entry.backoff_rank()),
            other => other,
        };
        self.store(entry);
    }

    fn insert(&mut self, entry: Entry, label: &str) {
        if let Some(lane) = entry.location.lane() {
            *self.moves.entry((lane, label.to_owned())).or_default() += 1;
        }
        self.store(entry);
    }

    fn store(&mut self, entry: Entry) {
        let key = entry.waiting.pod.key().clone();
        self.lanes.insert(&key, &entry.location);
        self.entries.insert(key, entry);
    }

    /// Moves pods whose backoff is over to the active queue.
    fn end_backoffs(&mut self, now: Timestamp) {
        while let Some(key) = self.lanes.first_expired(now) {
            let Some(mut entry) = self.take(&key) else {
                return;
            };
            entry.location = Location::Active(entry.rank());
            self.insert(entry, "BackoffComplete");
        }
    }
}

#[cfg(test)]
mod tests;
