//! The MVCC keyspace: every key at every revision since the last compaction. Pure: no clock, no lock.

mod cell;
mod compaction;
mod count;
mod events;
mod hash;
mod log;
mod points;
mod range;
mod read;
mod records;
mod restore;
mod revision_order;
mod slab;
#[cfg(test)]
mod tests;
mod tree;
mod version;
mod view;
mod write;

use crate::Error;
use compaction::Compaction;
pub(crate) use events::LogCursor;
pub use events::{Event, EventQuery, Page, PageLimits};
use hash::HistoryHash;
pub use hash::{HashRead, KeyspaceHash};
use log::Log;
pub use range::KeyRange;
pub(crate) use read::check_sort;
pub use read::{RangeRead, RangeResult};
use records::Records;
pub(crate) use restore::{Recorded, Restoring};
pub(crate) use revision_order::RevisionOrder;
pub(crate) use version::Version;
pub(crate) use view::Found;
pub use view::View;
pub use write::{Put, WriteTxn};

/// The store's logical clock; signed as in etcd's messages. The revision of an empty store is 1.
pub type Revision = i64;

/// Held bytes of a keyspace by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Keys, values and versions.
    pub records: u64,
    /// The hash and the tree of the keys.
    pub index: u64,
    /// The log of events, without their versions.
    pub history: u64,
}

/// All keys, their versions and the log of events in the order of revisions.
#[derive(Debug)]
pub struct Keyspace {
    records: Records,
    log: Log,
    current: Revision,
    compaction: Compaction,
    hash: HistoryHash,
}

impl Default for Keyspace {
    /// An empty keyspace without a quota.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Keyspace {
    /// An empty keyspace of a store with a quota, which bounds the compacted events that it keeps.
    pub fn new(quota_bytes: u64) -> Self {
        Self {
            records: Records::new(),
            log: Log::new(),
            current: 1,
            compaction: Compaction::new(quota_bytes),
            hash: HistoryHash::default(),
        }
    }

    /// The revision of the last write.
    pub fn current(&self) -> Revision {
        self.current
    }

    /// The revision of the last event, which may be that of an open transaction.
    fn written(&self) -> Revision {
        self.log
            .last()
            .map_or(self.current, |last| last.max(self.current))
    }

    /// The compacted revision, the oldest that can be read; -1 before the first compaction.
    pub fn compacted(&self) -> Revision {
        self.compaction.revision()
    }

    /// Number of keys that exist now.
    pub fn keys_live(&self) -> u64 {
        self.records.len_live()
    }

    /// Resident bytes of keys, versions, indexes and log.
    pub fn held_bytes(&self) -> u64 {
        let held = self.held();
        held.records + held.index + held.history
    }

    /// The held bytes by what they are for.
    pub fn held(&self) -> Held {
        let index = self.records.index_bytes();
        Held {
            records: self.records.held_bytes() - index,
            index,
            history: self.log.held_bytes(),
        }
    }

    /// The held bytes without the free slots that the next versions fill.
    pub fn used_bytes(&self) -> u64 {
        self.records.used_bytes() + self.log.used_bytes()
    }

    /// The keyspace at its last revision.
    pub fn now(&self) -> View<'_> {
        View::new(self, self.current)
    }

    /// The keyspace at a revision, which must be readable.
    pub fn at(&self, revision: Revision) -> View<'_> {
        View::new(self, revision)
    }

    /// Opens a write transaction, which becomes the next revision when it is committed.
    pub fn write(&mut self) -> WriteTxn<'_> {
        WriteTxn::new(self)
    }
}

/// Checks the revision that a request names, among those from the compacted to the current one;
/// `None` (0 or less) reads the current one.
pub(crate) fn check_revision(
    revision: Revision,
    compacted: Revision,
    current: Revision,
) -> Result<Option<Revision>, Error> {
    match revision {
        _ if revision <= 0 => Ok(None),
        _ if revision > current => Err(Error::FutureRevision),
        _ if revision < compacted => Err(Error::Compacted),
        _ => Ok(Some(revision)),
    }
}
