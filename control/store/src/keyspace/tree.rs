//! The ordered index of keys: a B+-tree over the handles of cells, each subtree with the number of
//! its live keys, so that a range is counted in the depth of the tree.

mod build;
mod cursor;
mod inner;
mod leaf;
mod memory;
mod order;
mod subtree;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use memmap2::MmapMut;

pub(super) use cursor::Cursor;
pub(super) use leaf::Entry;

use super::{
    cell::key_of,
    slab::{Handle, Slab},
};
use memory::Memory;
use subtree::Subtree;

/// Cells in the order of their keys. A cell is live if its key exists now; the other cells are
/// those of deleted keys that a read in the past may return. The keys are read from the slab that
/// the caller passes, which is always the same one.
#[derive(Debug)]
pub(super) struct Tree {
    /// `None`: no cell.
    root: Option<Subtree>,
    memory: Memory,
    len: u64,
}

/// A position between keys.
#[derive(Clone, Copy, Debug)]
enum Edge<'a> {
    Start,
    Before(&'a [u8]),
    After(&'a [u8]),
    End,
}

impl<'a> Edge<'a> {
    /// Where a range with this lower bound starts.
    fn lower(bound: Bound<&'a [u8]>) -> Self {
        match bound {
            Bound::Unbounded => Self::Start,
            Bound::Included(key) => Self::Before(key),
            Bound::Excluded(key) => Self::After(key),
        }
    }

    /// Where a range with this upper bound ends.
    fn upper(bound: Bound<&'a [u8]>) -> Self {
        match bound {
            Bound::Unbounded => Self::End,
            Bound::Included(key) => Self::After(key),
            Bound::Excluded(key) => Self::Before(key),
        }
    }

    /// Whether a key is in front of this position.
    fn is_above(self, key: &[u8]) -> bool {
        match self {
            Self::Start => false,
            Self::Before(edge) => key < edge,
            Self::After(edge) => key <= edge,
            Self::End => true,
        }
    }
}

impl Tree {
    /// A tree without cells.
    pub(super) fn new() -> Self {
        Self {
            root: None,
            memory: Memory::new(),
            len: 0,
        }
    }

    /// Number of cells.
    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Number of live cells.
    pub(super) fn len_live(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.live)
    }

    /// Bytes that the tree holds.
    pub(super) fn held_bytes(&self) -> u64 {
        self.memory.held_bytes()
    }

    /// See [`Slab::take_unmapped`].
    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        self.memory.take_unmapped()
    }

    /// Adds a cell, whose key must not be in the tree.
    pub(super) fn insert(&mut self, records: &Slab, cell: Handle, live: bool) {
        let entry = Entry { cell, live };
        let memory = &mut self.memory;
        self.len += 1;
        self.root = Some(match self.root.take() {
            None => Subtree::leaf_of(&[entry], memory),
            Some(mut root) => match root.insert(records, memory, entry) {
                None => root,
                Some(split) => root.raise(split, memory),
            },
        });
    }

    /// Removes a cell; returns whether it was in the tree.
    pub(super) fn remove(&mut self, records: &Slab, cell: Handle) -> bool {
        let Some(mut root) = self.root.take() else {
            return false;
        };
        let removed = root.remove(records, &mut self.memory, cell).is_some();
        self.root = root.reduced(&mut self.memory);
        self.len -= u64::from(removed);
        removed
    }

    /// Marks whether the key of a cell exists now; returns whether that changed.
    pub(super) fn set_live(&mut self, records: &Slab, cell: Handle, live: bool) -> bool {
        let entry = Entry { cell, live };
        let memory = &mut self.memory;
        let root = self.root.as_mut();
        root.is_some_and(|root| root.set(records, memory, entry))
    }

    /// Marks all keys of a range as deleted, which costs less than marking each.
    pub(super) fn kill(&mut self, records: &Slab, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        if let Some(root) = &mut self.root {
            let edges = [Edge::lower(from), Edge::upper(to)];
            root.kill(records, &mut self.memory, edges);
        }
    }

    /// Number of live keys in a range.
    pub(super) fn count(&self, records: &Slab, from: Bound<&[u8]>, to: Bound<&[u8]>) -> u64 {
        let before = |edge| {
            let root = self.root.as_ref();
            root.map_or(0, |root| root.live_before(records, &self.memory, edge))
        };
        before(Edge::upper(to)).saturating_sub(before(Edge::lower(from)))
    }

    /// The cells from a lower bound on, in order.
    pub(super) fn seek<'a>(&'a self, records: &Slab, from: Bound<&[u8]>) -> Cursor<'a> {
        Cursor::new(self, records, Edge::lower(from))
    }

    /// The live cells from a lower bound on, in order. Subtrees of deleted keys cost nothing.
    pub(super) fn seek_live<'a>(&'a self, records: &Slab, from: Bound<&[u8]>) -> Cursor<'a> {
        self.seek(records, from).live()
    }
}
