//! Restoring a keyspace: from a revision on, from the keys of a snapshot, and from recorded events.

use super::{Compaction, HistoryHash, KeyRange, Keyspace, KeyspaceHash, Log, Revision, log::Entry};
use crate::wire::Fields;

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

    /// Adds a key of the state at the compacted revision. Only before the first event.
    pub(crate) fn restore_key(&mut self, fields: &Fields<'_>) {
        let version = self.records.push_new(fields);
        let encoded = self.records.version(version).encoded();
        self.hash.restore(fields.key, encoded);
    }

    /// Adds the hashes of the compactions up to the one of the restored state.
    pub(crate) fn restore_compactions(&mut self, hashes: Vec<KeyspaceHash>) {
        self.hash.restore_compactions(hashes);
    }

    /// Appends a recorded event. Events come in the order in which they were written. The deletion of
    /// a key that does not exist, because its put was not recorded, only moves the revision.
    pub(crate) fn restore_event(&mut self, fields: &Fields<'_>) {
        let revision = fields.mod_revision;
        self.restore_revision(revision);
        let deleted = fields.version == 0;
        let version = match self.records.cell(fields.key) {
            Some(cell) if deleted && self.records.at(cell, revision).is_none() => return,
            Some(cell) => self.records.push_to(cell, fields),
            None if deleted => return,
            None => self.records.push_new(fields),
        };
        self.log.push(Entry { revision, version });
    }

    /// Deletes the keys of a range, as a recorded deletion did.
    pub(crate) fn restore_deletion(&mut self, range: &KeyRange, revision: Revision) {
        self.restore_revision(revision);
        self.delete_at(range, revision);
    }

    /// Moves the revision forward without an event.
    pub(crate) fn restore_revision(&mut self, revision: Revision) {
        self.current = self.current.max(revision);
    }
}
