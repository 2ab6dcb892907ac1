//! The keyspace at one revision, as reads, compares and transactions see it.

use std::ops::Bound;

use super::{
    KeyRange, Keyspace, RangeRead, RangeResult, Revision, Version, check_revision, slab::Handle,
};
use crate::{
    Error,
    proto::etcdserverpb::RangeRequest,
    wire::{Fields, KeyValue},
};

/// A read-only view of the keyspace at a revision.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    keyspace: &'a Keyspace,
    revision: Revision,
}

/// A key and its version in a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) version: Version<'a>,
}

impl<'a> Found<'a> {
    /// The decoded pair.
    pub(crate) fn fields(self) -> Fields<'a> {
        Fields {
            key: self.key,
            ..self.version.fields()
        }
    }

    /// The encoded pair, in a buffer of its own.
    pub(crate) fn encode(self) -> KeyValue {
        KeyValue::encode(self.key, self.version.encoded())
    }
}

impl<'a> View<'a> {
    pub(super) fn new(keyspace: &'a Keyspace, revision: Revision) -> Self {
        Self { keyspace, revision }
    }

    /// The revision of the view. In an open transaction, the one that it will write.
    pub fn revision(self) -> Revision {
        self.revision
    }

    pub(super) fn keyspace(self) -> &'a Keyspace {
        self.keyspace
    }

    /// The revision at which a request reads: the one that it names, or that of the view.
    pub(crate) fn read_revision(self, named: Revision) -> Result<Revision, Error> {
        let current = self.revision.min(self.keyspace.current());
        let checked = check_revision(named, self.keyspace.compacted(), current)?;
        Ok(checked.unwrap_or(self.revision))
    }

    /// A key.
    pub(crate) fn get(self, key: &[u8]) -> Option<Found<'a>> {
        let cell = self.keyspace.records.cell(key)?;
        self.found(cell)
    }

    /// A cell's key and version, if it exists in the view.
    pub(super) fn found(self, cell: Handle) -> Option<Found<'a>> {
        let records = &self.keyspace.records;
        let version = records.at(cell, self.revision)?;
        let key = records.key(cell);
        Some(Found { key, version })
    }

    /// The keys of a range, in order.
    pub(crate) fn scan(self, range: &KeyRange) -> impl Iterator<Item = Found<'a>> + use<'a> {
        let cells = self.cells(range, None);
        cells.filter_map(move |(_, cell)| self.found(cell))
    }

    /// The cells of a range behind a key, with the keys, in order. Some may not exist in the view.
    pub(super) fn cells(
        self,
        range: &KeyRange,
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], Handle)> + use<'a> {
        let records = &self.keyspace.records;
        let single = match range {
            KeyRange::One(key) => records.cell(key),
            KeyRange::Span(..) | KeyRange::From(_) => None,
        };
        let (from, end) = match range {
            KeyRange::One(_) => (None, None),
            KeyRange::Span(from, end) => (Some(from), Some(end.clone())),
            KeyRange::From(from) => (Some(from), None),
        };
        let many = from.map(|from| {
            let from = after.map_or(Bound::Included(from.as_ref()), Bound::Excluded);
            // At the last write, an open transaction included, the other cells do not exist.
            records.cells(from, self.revision >= self.keyspace.written())
        });
        let cells = single.into_iter().chain(many.into_iter().flatten());
        let keys = cells.map(|cell| (records.key(cell), cell));
        keys.take_while(move |(key, _)| end.as_ref().is_none_or(|end| *key < end.as_ref()))
    }

    /// Serves a range request as a whole.
    pub fn range(self, request: &RangeRequest) -> Result<RangeResult, Error> {
        let mut read = RangeRead::new(self, request)?;
        while !read.slice(self.keyspace) {}
        Ok(read.finish())
    }
}
