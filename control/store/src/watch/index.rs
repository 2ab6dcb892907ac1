//! The watchers of an event, found by its key: watchers of one key by hash, watchers of ranges by an
//! interval tree. The cost of an event does not grow with the watchers of other keys.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    Registration, WatchId,
    ranges::{End, RangeMap, Span},
    ready::{ReadySet, Wakes},
};
use crate::keyspace::{KeyRange, Revision};

/// Start revision, stream and ID of an armed watcher: those that an event concerns come first.
type ArmedKey = (Revision, usize, WatchId);

/// The watchers of one range.
#[derive(Debug, Default)]
pub(super) struct Group {
    members: usize,
    /// The members without events to read. An event removes a member, so that further events cost
    /// nothing until the member's stream reads.
    armed: BTreeMap<ArmedKey, Arc<ReadySet>>,
}

fn armed_key(registration: &Registration) -> ArmedKey {
    let stream = registration.ready_set.identity();
    (registration.start, stream, registration.id)
}

impl Group {
    fn arm(&mut self, registration: &Registration) {
        let ready_set = Arc::clone(&registration.ready_set);
        self.armed.insert(armed_key(registration), ready_set);
    }

    /// Marks the armed members that start at or below the revision of an event.
    fn mark(&mut self, revision: Revision, wakes: &mut Wakes) {
        if self.armed.is_empty() {
            return;
        }
        let later = self
            .armed
            .split_off(&(revision + 1, usize::MIN, WatchId::MIN));
        for ((_, _, id), ready_set) in mem::replace(&mut self.armed, later) {
            if ready_set.mark(id, revision) {
                wakes.push(ready_set);
            }
        }
    }
}

/// All watchers, grouped by range.
#[derive(Debug, Default)]
pub(super) struct Index {
    keys: HashMap<Bytes, Group>,
    ranges: RangeMap<Group>,
    members: usize,
}

impl Index {
    /// Number of watchers.
    pub(super) fn len(&self) -> usize {
        self.members
    }

    /// Adds a watcher, armed or not.
    pub(super) fn add(&mut self, registration: &Registration, armed: bool) {
        self.members += 1;
        let join = |group: &mut Group| {
            group.members += 1;
            if armed {
                group.arm(registration);
            }
        };
        match span(&registration.range) {
            Err(key) => join(self.keys.entry(key.clone()).or_default()),
            Ok(span) => {
                if let Some(group) = self.ranges.get_mut(&span) {
                    join(group);
                } else {
                    let mut group = Group::default();
                    join(&mut group);
                    self.ranges.insert(span, group);
                }
            }
        }
    }

    /// Arms a watcher again, after its stream has taken its mark.
    pub(super) fn arm(&mut self, registration: &Registration) {
        let group = match span(&registration.range) {
            Err(key) => self.keys.get_mut(key),
            Ok(span) => self.ranges.get_mut(&span),
        };
        if let Some(group) = group {
            group.arm(registration);
        }
    }

    /// Removes a watcher that was added.
    pub(super) fn remove(&mut self, registration: &Registration) {
        self.members -= 1;
        let leave = |group: &mut Group| {
            group.armed.remove(&armed_key(registration));
            group.members -= 1;
            group.members == 0
        };
        match span(&registration.range) {
            Err(key) => {
                if self.keys.get_mut(key).is_some_and(leave) {
                    self.keys.remove(key);
                }
            }
            Ok(span) => {
                if self.ranges.get_mut(&span).is_some_and(leave) {
                    self.ranges.remove(&span);
                }
            }
        }
    }

    /// Marks the armed watchers of an event; returns whether it concerns any watcher.
    pub(super) fn mark(&mut self, key: &[u8], revision: Revision, wakes: &mut Wakes) -> bool {
        let mut concerned = false;
        let mut mark = |group: &mut Group| {
            concerned = true;
            group.mark(revision, wakes);
        };
        if !self.keys.is_empty()
            && let Some(group) = self.keys.get_mut(key)
        {
            mark(group);
        }
        self.ranges.containing(key, &mut mark);
        concerned
    }
}

/// The range as a span; the key as the error if it is a single key.
fn span(range: &KeyRange) -> Result<Span, &Bytes> {
    match range {
        KeyRange::One(key) => Err(key),
        KeyRange::Span(start, end) => Ok((start.clone(), End::Before(end.clone()))),
        KeyRange::From(start) => Ok((start.clone(), End::Unbounded)),
    }
}
