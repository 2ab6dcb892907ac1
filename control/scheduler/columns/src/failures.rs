//! Classes that no node could have: their pods are not tried again before an event that can help.

use std::collections::BTreeMap;
use std::ops::Deref;

use dormouse_scheduler_decide::facts::Request;
use dormouse_scheduler_decide::{NodeEvent, Pod, Snapshot};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::counters::Gone;
use crate::decision::Decision;

/// Failures that are kept; beyond, all are forgotten.
const FAILURES_MAX: usize = 1 << 12;

/// Pods that fail together: those of one profile, with equal rules and requests.
pub(crate) type Key = (usize, u32, Request);

/// A failure, and the events that were known.
#[derive(Clone, Debug)]
struct Failure {
    decision: Decision,
    /// Pods of a lower priority could go.
    priority: i32,
    /// Any event can help.
    is_sensitive: bool,
    events: u64,
    objects: u64,
    nominations: u64,
}

/// Failures by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    all: HashMap<Key, Failure, FixedState>,
    events: u64,
    /// The last event that leaves more room.
    last_room: u64,
    /// The last event by which a pod of a priority came.
    last_added: BTreeMap<i32, u64>,
}

impl Failures {
    pub(crate) fn follow<P: Deref<Target = Pod>>(&mut self, event: &NodeEvent<P>) {
        let number = self.events + 1;
        match event {
            NodeEvent::Nominated(_) => return,
            NodeEvent::Added(_, pod) => _ = self.last_added.insert(pod.priority(), number),
            NodeEvent::Node(_) | NodeEvent::Removed(..) => self.last_room = number,
        }
        self.events = number;
    }

    /// Forgets rules.
    pub(crate) fn forget(&mut self, gone: &Gone) {
        self.all.retain(|(_, rules, _), _| !gone.contains(rules));
    }

    /// The decision for a class, if nothing happened that could change it.
    pub(crate) fn get(&self, key: &Key, snapshot: &Snapshot) -> Option<&Decision> {
        if self.all.is_empty() {
            return None;
        }
        let failure = self.all.get(key)?;
        let lower = self.last_added.range(..failure.priority);
        let has_victims = lower.into_iter().any(|(_, event)| *event > failure.events);
        let is_helped = self.last_room > failure.events
            || has_victims
            || failure.is_sensitive && self.events > failure.events
            || snapshot.objects_revision() > failure.objects
            || snapshot.nominations_revision() > failure.nominations;
        (!is_helped).then_some(&failure.decision)
    }

    /// Notes a decision; one with candidates for preemption is about to change.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        priority: i32,
        is_sensitive: bool,
        (decision, snapshot): (&Decision, &Snapshot),
    ) {
        if !matches!(decision, Decision::Unschedulable { .. }) || decision.has_victims() {
            return;
        }
        if self.all.len() >= FAILURES_MAX {
            self.all.clear();
        }
        let failure = Failure {
            decision: decision.clone(),
            priority,
            is_sensitive,
            events: self.events,
            objects: snapshot.objects_revision(),
            nominations: snapshot.nominations_revision(),
        };
        self.all.insert(key, failure);
    }
}
