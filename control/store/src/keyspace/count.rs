//! The number of keys in a range at a revision: the number now, less the events since.

use super::{KeyRange, Keyspace, Revision, events::Event, log::Position};

/// Events that one slice corrects at most; bounds the time for which a reader holds the lock.
const SLICE_EVENTS: usize = 1_024;

/// A count in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    keys: i64,
    next: Position,
    end: Position,
}

impl Count {
    /// A count at a readable revision. Events that are written from here on do not change it.
    pub(super) fn new(keyspace: &Keyspace, range: &KeyRange, revision: Revision) -> Self {
        let now = keyspace.records.count(range);
        Self {
            keys: i64::try_from(now).unwrap_or(i64::MAX),
            next: keyspace.log.position_after(revision),
            end: keyspace.log.end(),
        }
    }

    /// Number of keys now, and number of events that have to be corrected.
    pub(super) fn work(&self) -> (u64, u64) {
        (self.keys.unsigned_abs(), self.end - self.next)
    }

    /// Corrects some events; returns whether the count is complete.
    pub(super) fn slice(&mut self, keyspace: &Keyspace, range: &KeyRange) -> bool {
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let events = keyspace.events_from(self.next).take(left.min(SLICE_EVENTS));
        for event in events {
            self.next += 1;
            if range.contains(event.key()) {
                self.keys -= effect(&event);
            }
        }
        self.next == self.end
    }

    /// The number of keys, once it is complete.
    pub(super) fn keys(&self) -> i64 {
        self.keys
    }
}

/// What an event adds to the number of keys.
fn effect(event: &Event<'_>) -> i64 {
    if event.is_delete() {
        -1
    } else {
        i64::from(event.is_create())
    }
}
