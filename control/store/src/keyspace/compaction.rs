//! Compaction: the compacted revision moves at once; the versions below it are freed in slices, as
//! their events leave the log.

use memmap2::MmapMut;

use super::{
    Event, Keyspace, Revision, check_revision,
    log::{Entry, Position},
};
use crate::Error;

/// Compacted events that stay in the log for synced watchers, so that a compaction right after a
/// write does not cancel them; and bytes of the versions that these events supersede, which are
/// less in a store with a small quota.
const TAIL_EVENTS_MAX: u64 = 8_192;
const TAIL_BYTES_MAX: u64 = 16 << 20;
const TAIL_SHARE_OF_QUOTA: u64 = 16;

/// The compacted revision, and how far the memory below it is freed.
#[derive(Debug)]
pub(super) struct Compaction {
    revision: Revision,
    /// Position behind the compacted events that are in the tail.
    tail_end: Position,
    /// Bytes that the events of the tail supersede.
    tail_bytes: u64,
    tail_bytes_max: u64,
}

impl Compaction {
    pub(super) fn new(quota_bytes: u64) -> Self {
        Self {
            revision: -1,
            tail_end: 0,
            tail_bytes: 0,
            tail_bytes_max: TAIL_BYTES_MAX.min(quota_bytes / TAIL_SHARE_OF_QUOTA),
        }
    }

    /// Nothing below the revision is left.
    pub(super) fn starting_at(revision: Revision, quota_bytes: u64) -> Self {
        Self {
            revision,
            ..Self::new(quota_bytes)
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// Position behind the events that the compaction has passed.
    pub(super) fn passed(&self) -> Position {
        self.tail_end
    }
}

/// Memory to drop without a lock.
#[derive(Debug)]
#[must_use = "dropped at once, it is given back under the lock"]
pub struct Freed(#[expect(dead_code, reason = "it is held to be dropped")] Vec<MmapMut>);

impl Keyspace {
    /// Compacts at a revision up to `current`: no request reads below it from here on. The memory is
    /// freed by [`Keyspace::reclaim`].
    pub fn compact(&mut self, revision: Revision, current: Revision) -> Result<(), Error> {
        if revision <= self.compaction.revision {
            return Err(Error::Compacted);
        }
        check_revision(revision, self.compaction.revision, current)?;
        self.compaction.revision = revision;
        self.hash.compact(revision);
        Ok(())
    }

    /// Frees memory of compacted events, at most `events_max`; keeps what reads from the revision
    /// `pinned` on need. Returns whether there is nothing left to free.
    pub fn reclaim(&mut self, pinned: Option<Revision>, events_max: usize) -> bool {
        let compacted = self.compaction.revision;
        let floor = pinned.map_or(compacted, |pinned| pinned.min(compacted));
        (0..events_max).any(|_| !self.reclaim_one(floor))
    }

    /// Frees the tail, at most `events_max` events: synced watchers had time to read it. The events of the compacted revision
    /// stay if all of them are there, since a watch may start at it. Returns whether there is nothing left to free.
    pub fn drop_tail(&mut self, events_max: usize) -> bool {
        (0..events_max).any(|_| !self.drop_old())
    }

    /// The memory that was freed, not yet given back to the kernel, which takes long: the caller drops
    /// it when it has released the lock of the keyspace.
    pub fn take_freed(&mut self) -> Freed {
        let mut freed = self.records.take_unmapped();
        freed.extend(self.log.take_unmapped());
        Freed(freed)
    }

    fn drop_old(&mut self) -> bool {
        let first = self.log.get(self.log.start());
        let is_old = |entry: Entry| {
            entry.revision < self.compaction.revision || entry.revision <= self.log.dropped()
        };
        self.log.start() < self.compaction.tail_end
            && first.is_some_and(is_old)
            && self.drop_first()
    }

    /// Drops one event of a tail that is too long, or adds one to the tail.
    fn reclaim_one(&mut self, floor: Revision) -> bool {
        let tail_events = self.compaction.tail_end.saturating_sub(self.log.start());
        if tail_events > TAIL_EVENTS_MAX
            || self.compaction.tail_bytes > self.compaction.tail_bytes_max
        {
            return self.drop_first();
        }
        let next = self.log.get(self.compaction.tail_end);
        let Some(entry) = next.filter(|entry| entry.revision <= floor) else {
            return false;
        };
        self.hash.pass(&Event::new(&self.records, entry));
        self.compaction.tail_end += 1;
        self.compaction.tail_bytes += self.superseded_bytes(entry);
        true
    }

    fn drop_first(&mut self) -> bool {
        let Some(entry) = self.log.drop_first() else {
            return false;
        };
        self.compaction.tail_bytes -= self.superseded_bytes(entry);
        self.records.compact(entry.version);
        true
    }

    fn superseded_bytes(&self, entry: Entry) -> u64 {
        self.records.superseded_bytes(entry.version)
    }
}
