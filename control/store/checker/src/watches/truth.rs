//! The events that took place: those that responses report, and those of lost operations that a watch delivered.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Violation;
use crate::history::{Event, Key, Op, Operation, Revision, Value, Watch};

/// The changes by revision and key; `None` is a deletion.
type Changes<'a> = BTreeMap<Revision, HashMap<&'a Key, Option<Value>>>;

pub(super) struct Truth<'a> {
    /// Changes at revisions that a response names.
    answered: Changes<'a>,
    /// Changes at other revisions, which watches delivered.
    delivered: Changes<'a>,
    /// What lost operations may have done to a key.
    lost: HashSet<(&'a Key, Option<Value>)>,
}

impl<'a> Truth<'a> {
    pub(super) fn new(operations: &'a [Operation], watches: &'a [Watch]) -> Self {
        let mut truth = Self {
            answered: BTreeMap::new(),
            delivered: BTreeMap::new(),
            lost: lost(operations),
        };
        for operation in operations {
            let Some((_, response)) = operation.answer() else {
                continue;
            };
            for (key, value) in operation.effects() {
                let changes = truth.answered.entry(response.revision).or_default();
                changes.insert(key, value);
            }
        }
        let deliveries = watches.iter().flat_map(|watch| &watch.deliveries);
        for event in deliveries.flat_map(|delivery| &delivery.events) {
            if !truth.answered.contains_key(&event.revision) {
                let changes = truth.delivered.entry(event.revision).or_default();
                changes.entry(&event.key).or_insert(event.value);
            }
        }
        truth
    }

    /// Each event of the watch took place, by a response or by a lost operation and all watches alike.
    pub(super) fn explains(&self, watch: &Watch) -> Result<(), Violation> {
        let mut events = watch
            .deliveries
            .iter()
            .flat_map(|delivery| &delivery.events);
        match events.find(|event| !self.has(event)) {
            None => Ok(()),
            Some(event) => Err(Violation::Invented(event.clone())),
        }
    }

    fn has(&self, event: &Event) -> bool {
        if let Some(changes) = self.answered.get(&event.revision) {
            return changes.get(&event.key) == Some(&event.value);
        }
        let changes = self.delivered.get(&event.revision);
        let value = changes.and_then(|changes| changes.get(&event.key));
        value == Some(&event.value) && self.lost.contains(&(&event.key, event.value))
    }

    /// The watch has all changes of its keys up to the revision that it reached.
    pub(super) fn is_covered_by(&self, watch: &Watch) -> Result<(), Violation> {
        let events = watch
            .deliveries
            .iter()
            .flat_map(|delivery| &delivery.events);
        let has: HashSet<(Revision, &Key)> =
            events.map(|event| (event.revision, &event.key)).collect();
        let reached = watch.reached();
        if reached < watch.start {
            return Ok(());
        }
        let range = watch.start..=reached;
        let changes = self
            .answered
            .range(range.clone())
            .chain(self.delivered.range(range));
        for (&revision, changes) in changes {
            let mut keys = changes.keys().filter(|key| key.starts_with(&watch.prefix));
            if let Some(key) = keys.find(|key| !has.contains(&(revision, **key))) {
                let key = (*key).clone();
                return Err(Violation::Missing {
                    key,
                    revision,
                    reached,
                });
            }
        }
        Ok(())
    }
}

/// The changes that lost operations may have made.
fn lost(operations: &[Operation]) -> HashSet<(&Key, Option<Value>)> {
    let lost = operations
        .iter()
        .filter(|operation| operation.answer().is_none());
    let ops = lost.flat_map(|operation| {
        operation
            .request
            .success
            .iter()
            .chain(&operation.request.failure)
    });
    let changes = ops.filter_map(|op| match op {
        Op::Get(_) => None,
        Op::Put(key, value) => Some((key, Some(*value))),
        Op::Delete(key) => Some((key, None)),
    });
    changes.collect()
}
