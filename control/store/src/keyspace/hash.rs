//! Hashes of the keyspace's history, by which the copies of a store are compared.
//!
//! A hash covers the versions that can be read at the compacted revision and all events above it up
//! to the hashed revision. It is a sum over versions, so that a compaction updates it from the
//! events that it drops, without a walk of the keys.

use std::collections::VecDeque;

use prost::Message;

use super::{Event, Revision};

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

/// The hash at the compacted revision, and the hashes of past compactions.
#[derive(Debug)]
pub(super) struct HistoryHash {
    /// Sum over the versions that a read at the compacted revision returns.
    base: u64,
    stored: VecDeque<KeyspaceHash>,
}

impl Default for HistoryHash {
    fn default() -> Self {
        Self {
            base: EMPTY,
            stored: VecDeque::new(),
        }
    }
}

impl HistoryHash {
    /// The hash of a past compaction at this revision, if it is kept.
    pub(super) fn stored(&self, revision: Revision) -> Option<KeyspaceHash> {
        let mut stored = self.stored.iter();
        stored.find(|hash| hash.revision == revision).copied()
    }

    /// The hash of the history up to a revision; `events` are those from the compacted revision on.
    pub(super) fn of<'a>(&self, events: impl Iterator<Item = &'a Event>) -> u32 {
        fold(events.map(weight).fold(self.base, u64::wrapping_add))
    }

    /// Moves the compacted revision, over `events`; keeps the hash of the history before.
    pub(super) fn compact<'a>(
        &mut self,
        events: impl Iterator<Item = &'a Event>,
        compacted: Revision,
        revision: Revision,
    ) {
        let mut before = self.base;
        for event in events {
            let weight = weight(event);
            before = before.wrapping_add(weight);
            if !event.deleted {
                self.base = self.base.wrapping_add(weight);
            }
            if let Some(superseded) = &event.prev {
                let version = u64::from(crc32c::crc32c(&superseded.encode_to_vec()));
                self.base = self.base.wrapping_sub(version);
            }
        }
        self.stored.push_back(KeyspaceHash {
            hash: fold(before),
            compacted,
            revision,
        });
        self.stored
            .drain(..self.stored.len().saturating_sub(STORED_MAX));
    }
}

/// What one event adds to the sum.
fn weight(event: &Event) -> u64 {
    let version = u64::from(crc32c::crc32c(&event.kv.encode_to_vec()));
    version + if event.deleted { DELETED } else { 0 }
}

fn fold(sum: u64) -> u32 {
    let [low, high] = [sum & u64::from(u32::MAX), sum >> 32];
    u32::try_from(low ^ high).unwrap_or(u32::MAX)
}
