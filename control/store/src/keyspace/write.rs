//! A write transaction: its puts and deletes, which its own reads see before the commit.

use bytes::Bytes;

use super::{
    KeyRange, Keyspace, Revision, View,
    log::{Entry, Position},
    slab::Handle,
};
use crate::wire::Fields;

/// An open write transaction. Its commit creates a revision if it wrote something.
#[derive(Debug)]
#[must_use = "a transaction that is not committed leaves writes without a revision"]
pub struct WriteTxn<'a> {
    keyspace: &'a mut Keyspace,
    /// Position of its first event in the log.
    start: Position,
}

/// What a put sets.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Lease whose expiry deletes the key; 0 is none.
    pub lease: i64,
}

impl<'a> WriteTxn<'a> {
    pub(super) fn new(keyspace: &'a mut Keyspace) -> Self {
        let start = keyspace.log.end();
        Self { keyspace, start }
    }

    /// The keyspace with the writes of this transaction so far.
    pub fn view(&self) -> View<'_> {
        self.keyspace.at(self.keyspace.current + 1)
    }

    fn wrote(&self) -> bool {
        self.keyspace.log.end() != self.start
    }

    /// The revision for the header of a nested response: the new one after the first write.
    pub fn revision(&self) -> Revision {
        self.keyspace.current + Revision::from(self.wrote())
    }

    /// Puts a key.
    pub fn put(&mut self, put: Put<'_>) {
        let revision = self.keyspace.current + 1;
        let records = &mut self.keyspace.records;
        let hash = records.hash(put.key);
        let cell = records.cell_hashed((put.key, hash));
        let prev = cell.and_then(|cell| records.at(cell, revision));
        let (create_revision, version) = prev.map_or((revision, 0), |prev| {
            let prev = prev.fields();
            (prev.create_revision, prev.version)
        });
        let fields = Fields {
            key: put.key,
            create_revision,
            mod_revision: revision,
            version: version + 1,
            value: put.value,
            lease: put.lease,
        };
        let version = match cell {
            Some(cell) => records.push_to(cell, &fields),
            None => records.push_new(&fields, hash),
        };
        self.keyspace.log.push(Entry { revision, version });
    }

    /// Deletes the keys of a range, in key order; returns their number.
    pub fn delete(&mut self, range: &KeyRange) -> u64 {
        self.keyspace.delete_at(range, self.keyspace.current + 1)
    }

    /// Deletes those of the keys that exist, in their order.
    pub(crate) fn delete_keys(&mut self, keys: &[Bytes]) {
        let revision = self.keyspace.current + 1;
        let tombstones = self.keyspace.records.delete_keys(keys, revision);
        self.keyspace.push_all(&tombstones, revision);
    }

    /// Commits; returns the revision before, above which its events are in the log. Without events
    /// there is no new revision.
    pub fn commit(self) -> Revision {
        let before = self.keyspace.current;
        self.keyspace.current += Revision::from(self.wrote());
        before
    }
}

impl Keyspace {
    /// Deletes the keys of a range at the revision after the last one, in key order; returns their
    /// number.
    pub(super) fn delete_at(&mut self, range: &KeyRange, revision: Revision) -> u64 {
        let tombstones = self.records.delete(range, revision);
        self.push_all(&tombstones, revision);
        tombstones.len() as u64
    }

    fn push_all(&mut self, versions: &[Handle], revision: Revision) {
        for &version in versions {
            self.log.push(Entry { revision, version });
        }
    }
}
