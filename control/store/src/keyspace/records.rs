//! Cells and versions in one slab, with the two indexes that find the cell of a key.

use std::ops::Bound;

use bytes::Bytes;
use memmap2::MmapMut;

use super::{
    KeyRange, Revision, cell,
    cell::key_of,
    points::{AT_ONCE, Hash, Points},
    slab::{Handle, Slab, Supply},
    tree::{Entry, Tree},
    version::{self, Version},
};
use crate::wire::Fields;

/// Cells that a deletion reads before it writes them: the processor waits for their memory at once,
/// not for one after the other.
const BURIED_AT_ONCE: usize = 32;

/// All keys and their versions.
#[derive(Debug)]
pub(super) struct Records {
    slab: Slab,
    points: Points,
    tree: Tree,
}

impl Records {
    pub(super) fn new() -> Self {
        Self {
            slab: Slab::new(),
            points: Points::new(),
            tree: Tree::new(),
        }
    }

    /// Resident bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.slab.held_bytes() + self.index_bytes()
    }

    /// Bytes that hold something: the held ones without the free slots of the slab, which the next
    /// versions fill.
    pub(super) fn used_bytes(&self) -> u64 {
        self.slab.used_bytes() + self.index_bytes()
    }

    /// Bytes of both indexes.
    pub(super) fn index_bytes(&self) -> u64 {
        self.points.held_bytes() + self.tree.held_bytes()
    }

    /// Number of keys that exist now.
    pub(super) fn len_live(&self) -> u64 {
        self.tree.len_live()
    }

    /// Number of cells: keys that exist now or in a readable past.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.tree.len()
    }

    pub(super) fn version(&self, handle: Handle) -> Version<'_> {
        Version::new(&self.slab, handle)
    }

    pub(super) fn key(&self, cell: Handle) -> &[u8] {
        key_of(self.slab.get(cell))
    }

    /// The hash of a key, with which its cell is found and added.
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        self.points.hash(key)
    }

    /// The cell of a key.
    pub(super) fn cell(&self, key: &[u8]) -> Option<Handle> {
        self.cell_hashed((key, self.hash(key)))
    }

    /// The cell of a key whose hash is known.
    pub(super) fn cell_hashed(&self, key: (&[u8], Hash)) -> Option<Handle> {
        self.points.get(&self.slab, key)
    }

    /// The cells of at most [`AT_ONCE`] keys, found together.
    pub(super) fn cells_hashed<'k>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], Hash)> + Clone,
    ) -> [Option<Handle>; AT_ONCE] {
        self.points.get_all(&self.slab, keys)
    }

    /// The latest version of a cell.
    pub(super) fn latest(&self, cell: Handle) -> Option<Handle> {
        cell::latest(&self.slab, cell)
    }

    /// The put that a read of a cell at a revision returns.
    pub(super) fn at(&self, cell: Handle, revision: Revision) -> Option<Version<'_>> {
        self.walk(cell, revision).0
    }

    /// The same, and the number of versions that it had to read: those of a key that was written
    /// often since the revision are many.
    pub(super) fn walk(&self, cell: Handle, revision: Revision) -> (Option<Version<'_>>, usize) {
        let (mut next, mut versions) = (self.latest(cell), 0);
        while let Some(handle) = next {
            versions += 1;
            let version = self.version(handle);
            if version.revision() <= revision {
                return ((!version.is_tombstone()).then_some(version), versions);
            }
            next = version.prev();
        }
        (None, versions)
    }

    /// The cells from a lower bound on, in the order of keys; only those of keys that exist now if
    /// `live`.
    pub(super) fn cells<'a>(
        &'a self,
        from: Bound<&[u8]>,
        live: bool,
    ) -> impl Iterator<Item = Handle> + use<'a> {
        let cursor = if live {
            self.tree.seek_live(&self.slab, from)
        } else {
            self.tree.seek(&self.slab, from)
        };
        cursor.map(|entry| entry.cell)
    }

    /// Number of keys in a range that exist now.
    pub(super) fn count(&self, range: &KeyRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (from, to) = range.bounds();
        self.tree.count(&self.slab, from, to)
    }

    /// Adds a key that has no cell, with its hash and its first version.
    pub(super) fn push_new(&mut self, fields: &Fields<'_>, hash: Hash) -> Handle {
        let (cell, version) = self.push_unordered(fields, hash);
        self.tree.insert(&self.slab, cell, fields.version != 0);
        version
    }

    /// The same without a place in the order of keys, which [`Records::order`] gives the cell; returns
    /// the cell, too. Until then the key is found by its hash only.
    pub(super) fn push_unordered(&mut self, fields: &Fields<'_>, hash: Hash) -> (Handle, Handle) {
        let cell = cell::insert(&mut self.slab, fields.key);
        let version = version::insert(&mut self.slab, cell, None, fields);
        cell::set_latest(&mut self.slab, cell, (version, fields.version != 0));
        self.points.insert(&self.slab, (cell, hash));
        (cell, version)
    }

    /// See [`Slab::take_supply`].
    pub(super) fn take_supply(&mut self, supply: &Supply) {
        self.slab.take_supply(supply);
    }

    /// See [`Slab::supplied`].
    pub(super) fn supplied(&mut self) {
        self.slab.supplied();
    }

    /// Gives cells their places in the order of keys.
    pub(super) fn order(&mut self, cells: Vec<Handle>) {
        let live = |cell| Entry {
            cell,
            live: self.is_live(cell),
        };
        let entries = cells.into_iter().map(live).collect();
        self.tree.extend(&self.slab, entries);
    }

    /// Adds the latest version of a cell; a tombstone has no version number.
    pub(super) fn push_to(&mut self, cell: Handle, fields: &Fields<'_>) -> Handle {
        let prev = self.latest(cell);
        let (live, was_live) = (fields.version != 0, self.is_live(cell));
        let version = version::insert(&mut self.slab, cell, prev, fields);
        cell::set_latest(&mut self.slab, cell, (version, live));
        if live != was_live {
            self.tree.set_live(&self.slab, cell, live);
        }
        version
    }

    /// Deletes the keys of a range that exist; returns their tombstones, in the order of keys.
    pub(super) fn delete(&mut self, range: &KeyRange, revision: Revision) -> Vec<Handle> {
        let cells = self.live_cells(range);
        match cells.as_slice() {
            [] => {}
            [only] => {
                self.tree.set_live(&self.slab, *only, false);
            }
            _ => {
                let (from, to) = range.bounds();
                self.tree.kill(&self.slab, from, to);
            }
        }
        self.bury(&cells, revision)
    }

    /// Deletes those of the keys that exist; returns their tombstones, in the order of the keys.
    pub(super) fn delete_keys(&mut self, keys: &[Bytes], revision: Revision) -> Vec<Handle> {
        let found = keys.iter().filter_map(|key| self.cell(key));
        let cells: Vec<Handle> = found.filter(|cell| self.is_live(*cell)).collect();
        for cell in &cells {
            self.tree.set_live(&self.slab, *cell, false);
        }
        self.bury(&cells, revision)
    }

    /// Adds a tombstone to each of the cells, which the tree has as deleted.
    fn bury(&mut self, cells: &[Handle], revision: Revision) -> Vec<Handle> {
        let encoded = version::tombstone(revision);
        let mut tombstones = Vec::with_capacity(cells.len());
        let mut latest = [None; BURIED_AT_ONCE];
        for cells in cells.chunks(BURIED_AT_ONCE) {
            for (latest, cell) in latest.iter_mut().zip(cells) {
                *latest = self.latest(*cell);
            }
            for (cell, prev) in cells.iter().zip(latest) {
                let version = version::insert_tombstone(&mut self.slab, *cell, prev, &encoded);
                cell::set_latest(&mut self.slab, *cell, (version, false));
                tombstones.push(version);
            }
        }
        tombstones
    }

    /// The cells of the keys of a range that exist, in the order of keys.
    fn live_cells(&self, range: &KeyRange) -> Vec<Handle> {
        if let KeyRange::One(key) = range {
            let cell = self.cell(key).filter(|cell| self.is_live(*cell));
            return cell.into_iter().collect();
        }
        // Counted by the tree, so that no key is compared with the end of the range.
        let count = usize::try_from(self.count(range)).unwrap_or(usize::MAX);
        let (from, _) = range.bounds();
        self.cells(from, true).take(count).collect()
    }

    fn is_live(&self, cell: Handle) -> bool {
        cell::is_live(&self.slab, cell)
    }

    /// Frees what no read from the revision of `version` on returns: its previous version, and the
    /// whole key if the version is a tombstone and the latest one.
    pub(super) fn compact(&mut self, handle: Handle) {
        let version = self.version(handle);
        let (cell, tombstone) = (version.cell(), version.is_tombstone());
        if let Some(prev) = version.prev() {
            self.slab.remove(prev);
            version::unlink(&mut self.slab, handle);
        }
        if tombstone && self.latest(cell) == Some(handle) {
            self.tree.remove(&self.slab, cell);
            self.points.remove(&self.slab, cell);
            self.slab.remove(cell);
            self.slab.remove(handle);
        }
    }

    /// See [`Slab::take_unmapped`].
    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        let mut unmapped = self.slab.take_unmapped();
        unmapped.extend(self.points.take_unmapped());
        unmapped.extend(self.tree.take_unmapped());
        unmapped
    }

    /// Bytes that [`Records::compact`] of this version frees at least.
    pub(super) fn superseded_bytes(&self, handle: Handle) -> u64 {
        let prev = self.version(handle).prev();
        prev.map_or(0, |prev| self.version(prev).record_len() as u64)
    }
}
