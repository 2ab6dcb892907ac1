//! The MVCC keyspace: every key at every revision since the last compaction. Pure: no clock, no lock.

mod cell;
mod hash;
mod history;
mod log;
#[cfg_attr(not(test), expect(dead_code, reason = "the keyspace moves to it next"))]
mod points;
mod range;
mod read;
#[cfg_attr(not(test), expect(dead_code, reason = "the keyspace moves to it next"))]
mod slab;
#[cfg(test)]
mod tests;
#[cfg_attr(not(test), expect(dead_code, reason = "the keyspace moves to it next"))]
mod tree;
mod write;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::{Error, proto::mvccpb::KeyValue};
use hash::HistoryHash;
pub use hash::KeyspaceHash;
use history::History;
use log::Log;
pub use log::{Event, Page, PageLimits};
pub use range::KeyRange;
pub use read::{RangeResult, check_sort};
pub use write::WriteTxn;

/// The store's logical clock; signed as in etcd's messages. The revision of an empty store is 1.
pub type Revision = i64;

/// Bytes that one version takes besides key and value, in the estimate of [`Keyspace::bytes`].
const VERSION_OVERHEAD_BYTES: u64 = 128;

/// All keys, their versions and the log of events in the order of revisions.
#[derive(Debug)]
pub struct Keyspace {
    keys: BTreeMap<Bytes, History>,
    log: Log,
    hash: HistoryHash,
    current: Revision,
    compacted: Revision,
    keys_live: u64,
    bytes: u64,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            log: Log::default(),
            hash: HistoryHash::default(),
            current: 1,
            compacted: -1,
            keys_live: 0,
            bytes: 0,
        }
    }
}

impl Keyspace {
    /// The revision of the last write.
    pub fn current(&self) -> Revision {
        self.current
    }

    /// The compacted revision, the oldest that can be read; -1 before the first compaction.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Number of keys that exist now.
    pub fn keys_live(&self) -> u64 {
        self.keys_live
    }

    /// Estimated bytes of all versions.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latest version of the key, with the uncommitted writes of an open [`WriteTxn`].
    pub fn latest(&self, key: &[u8]) -> Option<&Arc<KeyValue>> {
        self.keys.get(key).and_then(History::latest)
    }

    /// Opens a write transaction, which becomes the next revision when it is committed.
    pub fn write(&mut self) -> WriteTxn<'_> {
        WriteTxn::new(self)
    }

    /// Checks the revision that a request names; `None` (0 or less) reads the latest versions.
    pub fn read_revision(&self, revision: Revision) -> Result<Option<Revision>, Error> {
        match revision {
            _ if revision <= 0 => Ok(None),
            _ if revision > self.current => Err(Error::FutureRevision),
            _ if revision < self.compacted => Err(Error::Compacted),
            _ => Ok(Some(revision)),
        }
    }

    /// The events of a range from a revision on, oldest first; a page never splits a revision. A
    /// `synced` watcher existed when the events were written, and may read a bounded number of
    /// compacted ones.
    pub fn events(
        &self,
        range: &KeyRange,
        from: Revision,
        synced: bool,
        limits: PageLimits,
    ) -> Result<Page, Error> {
        let readable = from >= self.compacted || (synced && from > self.log.dropped());
        if !readable {
            return Err(Error::Compacted);
        }
        Ok(self.log.page(range, from, self.current, limits))
    }

    /// The revisions above `above`, with the keys that they wrote, oldest first.
    pub fn written(&self, above: Revision) -> impl Iterator<Item = (Revision, &[u8])> {
        let events = self.log.between(above, self.current);
        events.map(|event| (event.revision, event.kv.key.as_ref()))
    }

    /// Drops the versions that only reads below `revision` could return. The cost grows with the
    /// events since the last compaction, not with the number of keys.
    pub fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.current {
            return Err(Error::FutureRevision);
        }
        for event in self.log.between(self.compacted, revision) {
            let Some(history) = self.keys.get_mut(&event.kv.key) else {
                continue;
            };
            self.bytes -= history.compact(revision);
            if history.is_empty() {
                self.keys.remove(&event.kv.key);
            }
        }
        let events = self.log.between(self.compacted, revision);
        self.hash.compact(events, self.compacted, revision);
        self.log.compact(revision);
        self.compacted = revision;
        Ok(())
    }

    /// The hash of the history up to a revision; 0 is the current one. At the revision of one of the
    /// last compactions, the hash that it had before that compaction.
    pub fn hash(&self, revision: Revision) -> Result<KeyspaceHash, Error> {
        if revision != 0
            && let Some(stored) = self.hash.stored(revision)
        {
            return Ok(stored);
        }
        let revision = match revision {
            0 => self.current,
            _ if revision > self.current => return Err(Error::FutureRevision),
            _ if revision < self.compacted => return Err(Error::Compacted),
            _ => revision,
        };
        Ok(KeyspaceHash {
            hash: self.hash.of(self.log.between(self.compacted, revision)),
            compacted: self.compacted,
            revision,
        })
    }
}

/// Bytes that one version of a key counts in [`Keyspace::bytes`].
fn weight(kv: &KeyValue) -> u64 {
    VERSION_OVERHEAD_BYTES + kv.key.len() as u64 + kv.value.len() as u64
}
