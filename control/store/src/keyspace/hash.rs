//! Hashes of the keyspace's history, by which the copies of a store are compared.
//!
//! A hash covers the versions that can be read at the compacted revision and all events above it up
//! to the hashed revision. It is a sum over versions, so that a compaction updates it from the
//! events that it passes, in slices and without a walk of the keys.

use std::collections::VecDeque;

use super::{Event, Keyspace, Revision, check_revision};
use crate::Error;

/// Compactions whose own hash is kept; as in etcd.
const STORED_MAX: usize = 10;

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

impl Keyspace {
    /// The hash of the history up to a revision; 0 is the current one. At the revision of one of the
    /// last compactions, the hash that it had before that compaction. The cost grows with the events
    /// since the compacted revision.
    pub fn hash(&self, revision: Revision) -> Result<KeyspaceHash, Error> {
        let (mut hash, compacted) = (self.hash.clone(), self.compacted());
        let mut events = self.events_from(self.compaction.passed()).peekable();
        while let Some(event) = events.next_if(|event| event.revision() <= compacted) {
            hash.pass(&event);
        }
        hash.finish(compacted);
        if revision > 0
            && let Some(stored) = hash.stored(revision)
        {
            return Ok(stored);
        }
        let named = check_revision(revision, compacted, self.current)?;
        let revision = named.unwrap_or(self.current);
        let events = events.take_while(|event| event.revision() <= revision);
        let sum = events
            .map(|event| weight(&event))
            .fold(hash.sum, u64::wrapping_add);
        Ok(KeyspaceHash {
            hash: fold(sum),
            compacted,
            revision,
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
