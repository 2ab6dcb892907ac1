//! Hashes of the keyspace's history, by which the copies of a store are compared.
//!
//! A hash covers the versions that can be read at the compacted revision and all events above it up
//! to the hashed revision. It is a sum over versions, so that a compaction updates it from the
//! events that it passes, in slices and without a walk of the keys.

use std::collections::VecDeque;

use super::{Event, Keyspace, Revision, View, check_revision, log::Position};
use crate::Error;

/// Compactions whose own hash is kept; as in etcd.
const STORED_MAX: usize = 10;

/// Events that one slice hashes; bounds the time for which a reader holds the lock.
const SLICE_EVENTS: usize = 512;

/// The hash of a keyspace without a version; not 0, as clients take 0 for a missing field.
const EMPTY: u64 = 1;

/// Added to the hash of a deletion, which has the key and the revision only.
const DELETED: u64 = 1 << 32;

/// The hash of the history between two revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceHash {
    /// The hash.
    pub hash: u32,
    /// The compacted revision when the hash was made; -1 before the first compaction.
    pub compacted: Revision,
    /// The hashed revision.
    pub revision: Revision,
}

/// The hash of the events that the compaction has passed, and the hashes of past compactions.
#[derive(Clone, Debug)]
pub(super) struct HistoryHash {
    /// Sum over the versions that a read at the last passed event returns.
    base: u64,
    /// The hash of the history at the compacted revision before, and all events since.
    sum: u64,
    /// The last compaction whose events are all passed.
    passed: Revision,
    /// Later compactions.
    pending: VecDeque<Revision>,
    stored: VecDeque<KeyspaceHash>,
}

impl Default for HistoryHash {
    fn default() -> Self {
        Self {
            base: EMPTY,
            sum: EMPTY,
            passed: -1,
            pending: VecDeque::new(),
            stored: VecDeque::new(),
        }
    }
}

impl HistoryHash {
    /// The history from a compacted revision on.
    pub(super) fn starting_at(revision: Revision) -> Self {
        Self {
            passed: revision,
            ..Self::default()
        }
    }

    /// Adds a version that can be read at the compacted revision.
    pub(super) fn restore(&mut self, key: &[u8], encoded: &[u8]) {
        let weight = version_weight(key, encoded);
        self.base = self.base.wrapping_add(weight);
        self.sum = self.sum.wrapping_add(weight);
    }

    /// Adds the hashes of compactions up to the restored revision.
    pub(super) fn restore_compactions(&mut self, hashes: impl IntoIterator<Item = KeyspaceHash>) {
        self.stored.extend(hashes);
    }

    /// Moves the compacted revision; its events are passed later.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.pending.push_back(revision);
    }

    /// Passes the next event, which is compacted.
    pub(super) fn pass(&mut self, event: &Event<'_>) {
        self.finish(event.revision() - 1);
        let weight = weight(event);
        self.sum = self.sum.wrapping_add(weight);
        if !event.is_delete() {
            self.base = self.base.wrapping_add(weight);
        }
        if let Some(superseded) = event.superseded() {
            let weight = version_weight(event.key(), superseded.encoded());
            self.base = self.base.wrapping_sub(weight);
        }
    }

    /// Keeps the hashes of the compactions up to a revision, whose events are all passed.
    fn finish(&mut self, revision: Revision) {
        while let Some(&compaction) = self.pending.front()
            && compaction <= revision
        {
            self.pending.pop_front();
            self.stored.push_back(KeyspaceHash {
                hash: fold(self.sum),
                compacted: self.passed,
                revision: compaction,
            });
            self.sum = self.base;
            self.passed = compaction;
        }
        let surplus = self.stored.len().saturating_sub(STORED_MAX);
        self.stored.drain(..surplus);
    }

    /// The hash of a past compaction at this revision, if it is kept.
    fn stored(&self, revision: Revision) -> Option<KeyspaceHash> {
        let mut stored = self.stored.iter();
        stored.find(|hash| hash.revision == revision).copied()
    }
}

/// A hash in progress: first the compacted events that the compaction has not passed yet, then the
/// events up to the hashed revision. [`HashRead::pinned`] must stay readable.
#[derive(Debug)]
pub struct HashRead {
    hash: HistoryHash,
    next: Position,
    compacted: Revision,
    revision: Revision,
    /// Whether the request names the revision.
    named: bool,
}

impl HashRead {
    /// The hash of the history up to a revision; 0 is the current one. At the revision of one of the
    /// last compactions, the hash that it had before that compaction.
    pub fn new(view: View<'_>, revision: Revision) -> Self {
        let keyspace = view.keyspace();
        Self {
            hash: keyspace.hash.clone(),
            next: keyspace.compaction.passed(),
            compacted: keyspace.compacted(),
            revision: if revision == 0 {
                view.revision()
            } else {
                revision
            },
            named: revision != 0,
        }
    }

    /// The revision below the first event that is not hashed: while it is readable, no event that the
    /// hash needs is dropped.
    pub fn pinned(&self, keyspace: &Keyspace) -> Revision {
        let next = keyspace.log.get(self.next);
        next.map_or(self.compacted, |next| self.compacted.min(next.revision - 1))
    }

    /// The hashes of the past compactions up to a revision, after the last slice.
    pub fn compactions(self, revision: Revision) -> Vec<KeyspaceHash> {
        let mut stored = Vec::from(self.hash.stored);
        stored.retain(|hash| hash.revision <= revision);
        stored
    }

    /// Hashes some events; returns the hash when it is complete.
    pub fn slice(&mut self, view: View<'_>) -> Option<Result<KeyspaceHash, Error>> {
        let events = view.keyspace().events_from(self.next);
        for event in events.take(SLICE_EVENTS) {
            if event.revision() > self.compacted.max(self.revision) {
                return Some(self.finish(view));
            }
            self.next += 1;
            if event.revision() <= self.compacted {
                self.hash.pass(&event);
            } else {
                self.hash.finish(self.compacted);
                self.hash.sum = self.hash.sum.wrapping_add(weight(&event));
            }
        }
        let complete = self.next == view.keyspace().log.end();
        complete.then(|| self.finish(view))
    }

    fn finish(&mut self, view: View<'_>) -> Result<KeyspaceHash, Error> {
        self.hash.finish(self.compacted);
        let stored = self.hash.stored(self.revision).filter(|_| self.named);
        if let Some(stored) = stored {
            return Ok(stored);
        }
        check_revision(self.revision, self.compacted, view.revision())?;
        Ok(KeyspaceHash {
            hash: fold(self.hash.sum),
            compacted: self.compacted,
            revision: self.revision,
        })
    }
}

/// What one event adds to the sum.
fn weight(event: &Event<'_>) -> u64 {
    let version = version_weight(event.key(), event.encoded());
    version + if event.is_delete() { DELETED } else { 0 }
}

fn version_weight(key: &[u8], encoded: &[u8]) -> u64 {
    crc32c::crc32c_append(crc32c::crc32c(key), encoded).into()
}

fn fold(sum: u64) -> u32 {
    let [low, high] = [sum & u64::from(u32::MAX), sum >> 32];
    u32::try_from(low ^ high).unwrap_or(u32::MAX)
}
