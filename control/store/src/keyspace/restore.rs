//! Restoring a keyspace: from a revision on, from the keys of a snapshot, and from recorded events.

use super::{
    Compaction, HistoryHash, KeyRange, Keyspace, KeyspaceHash, Log, Revision,
    log::Entry,
    points::{AT_ONCE, Hash},
    slab::{Handle, Supply},
};
use crate::{Error, wire::Fields};

impl Keyspace {
    /// An empty keyspace at a revision, whose history up to it is compacted.
    pub fn starting_at(revision: Revision, quota_bytes: u64) -> Self {
        Self {
            log: Log::starting_after(revision),
            current: revision,
            compaction: Compaction::starting_at(revision, quota_bytes),
            hash: HistoryHash::starting_at(revision),
            ..Self::default()
        }
    }
}

/// A recorded event, or a key of a snapshot, and where the key is.
#[derive(Clone, Debug)]
pub(crate) struct Recorded<'a> {
    /// The key and its fields after the event; those of a deletion have no version.
    pub(crate) fields: Fields<'a>,
    hash: Hash,
    /// `None`: not looked up, or not found.
    cell: Option<Handle>,
}

/// Bytes of records from which on their memory is supplied: many more may follow.
const UNSUPPLIED_BYTES: u64 = 16 << 20;

/// A keyspace that is restored. New keys wait until many are put in order at once: when all are
/// there, or when a deletion or a compaction needs the order.
#[derive(Debug)]
pub(crate) struct Restoring {
    keyspace: Keyspace,
    unordered: Vec<Handle>,
    /// Memory of many records; `None` while they are few, or without a thread.
    supply: Option<Supply>,
}

impl Restoring {
    /// Restores into a keyspace without keys.
    pub(crate) fn new(keyspace: Keyspace) -> Self {
        Self {
            keyspace,
            unordered: Vec::new(),
            supply: None,
        }
    }

    /// The revision of the last write.
    pub(crate) fn current(&self) -> Revision {
        self.keyspace.current
    }

    /// The keyspace, of which the revision and the events are restored so far; not for reads of ranges.
    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The restored keyspace.
    pub(crate) fn finish(mut self) -> Keyspace {
        self.order();
        if self.supply.take().is_some() {
            self.keyspace.records.supplied();
        }
        self.keyspace
    }

    /// Adds a key of the state at the compacted revision. Only before the first event.
    pub(crate) fn key(&mut self, key: &Recorded<'_>) {
        let version = self.push_new(key);
        let encoded = self.keyspace.records.version(version).encoded();
        self.keyspace.hash.restore(key.fields.key, encoded);
    }

    /// Adds the hashes of the compactions up to the one of the restored state.
    pub(crate) fn compactions(&mut self, hashes: Vec<KeyspaceHash>) {
        self.keyspace.hash.restore_compactions(hashes);
    }

    /// A recorded event or key, not looked up yet.
    pub(crate) fn recorded<'a>(&self, fields: Fields<'a>) -> Recorded<'a> {
        Recorded {
            hash: self.keyspace.records.hash(fields.key),
            fields,
            cell: None,
        }
    }

    /// Looks recorded keys up, many at once. What is found is valid until a compaction.
    pub(crate) fn find(&mut self, events: &mut [Recorded<'_>]) {
        self.take_supply();
        for events in events.chunks_mut(AT_ONCE) {
            let keys = events.iter().map(|event| (event.fields.key, event.hash));
            let cells = self.keyspace.records.cells_hashed(keys);
            for (event, cell) in events.iter_mut().zip(cells) {
                event.cell = cell;
            }
        }
    }

    /// Appends a recorded event. Events come in the order in which they were written. The deletion of
    /// a key that does not exist, because its put was not recorded, only moves the revision.
    pub(crate) fn event(&mut self, event: &Recorded<'_>) {
        let Recorded { fields, hash, cell } = event;
        let revision = fields.mod_revision;
        self.revision(revision);
        let deleted = fields.version == 0;
        let records = &mut self.keyspace.records;
        // A key that was not found may be that of an event before.
        let cell = cell.or_else(|| records.cell_hashed((fields.key, *hash)));
        let version = match cell {
            Some(cell) if deleted && records.at(cell, revision).is_none() => return,
            Some(cell) => records.push_to(cell, fields),
            None if deleted => return,
            None => self.push_new(event),
        };
        self.keyspace.log.push(Entry { revision, version });
    }

    fn take_supply(&mut self) {
        let records = &mut self.keyspace.records;
        if self.supply.is_none() && records.held_bytes() >= UNSUPPLIED_BYTES {
            self.supply = Supply::start().ok();
        }
        if let Some(supply) = &self.supply {
            records.take_supply(supply);
        }
    }

    fn push_new(&mut self, Recorded { fields, hash, .. }: &Recorded<'_>) -> Handle {
        let records = &mut self.keyspace.records;
        let (cell, version) = records.push_unordered(fields, *hash);
        self.unordered.push(cell);
        version
    }

    /// Deletes the keys of a range, as a recorded deletion did.
    pub(crate) fn deletion(&mut self, range: &KeyRange, revision: Revision) {
        self.order();
        self.revision(revision);
        self.keyspace.delete_at(range, revision);
    }

    /// Compacts, as a recorded compaction did, and frees all memory that it can.
    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        self.keyspace.compact(revision, self.keyspace.current)?;
        self.order();
        self.keyspace.reclaim(None, usize::MAX);
        Ok(())
    }

    /// Moves the revision forward without an event.
    pub(crate) fn revision(&mut self, revision: Revision) {
        self.keyspace.current = self.keyspace.current.max(revision);
    }

    fn order(&mut self) {
        let unordered = std::mem::take(&mut self.unordered);
        if !unordered.is_empty() {
            self.keyspace.records.order(unordered);
        }
    }
}
