//! A tree of many entries at once, which costs less than to insert one after the other.

use std::ops::Bound;

use super::{
    Entry, Memory, Slab, Tree,
    inner::{CHILDREN_MAX, Inner},
    leaf::LEAF_ENTRIES_MAX,
    order,
    subtree::Subtree,
};

/// Entries are inserted one by one if they are fewer than this part of those in the tree.
const INSERTED_SHARE: u64 = 8;

/// The nodes of one depth, and the separators between them.
#[derive(Default)]
struct Level {
    nodes: Vec<Subtree>,
    separators: Vec<Box<[u8]>>,
}

impl Tree {
    /// Adds entries, whose keys must not be in the tree.
    pub(in crate::keyspace) fn extend(&mut self, records: &Slab, entries: Vec<Entry>) {
        if (entries.len() as u64) < self.len / INSERTED_SHARE {
            for Entry { cell, live } in entries {
                self.insert(records, cell, live);
            }
            return;
        }
        let present = self.seek(records, Bound::Unbounded);
        let entries = order::sorted(records, present.chain(entries));
        *self = Self::of(records, &entries);
    }

    /// A tree of entries in the order of their keys.
    fn of(records: &Slab, entries: &[Entry]) -> Self {
        let mut memory = Memory::new();
        let mut level = leaves(records, entries, &mut memory);
        while level.nodes.len() > 1 {
            level = parents(level, &mut memory);
        }
        Self {
            root: level.nodes.pop(),
            memory,
            len: entries.len() as u64,
        }
    }
}

/// Leaves of about the same size, as few as possible.
fn leaves(records: &Slab, entries: &[Entry], memory: &mut Memory) -> Level {
    let mut level = Level::default();
    let mut rest = entries;
    for size in parts(entries.len(), LEAF_ENTRIES_MAX) {
        let (leaf, right) = rest.split_at(size);
        level.nodes.push(Subtree::leaf_of(leaf, memory));
        if let ([.., last], [next, ..]) = (leaf, right) {
            let separator = memory.separator(last.key(records), next.key(records));
            level.separators.push(separator);
        }
        rest = right;
    }
    level
}

/// Inner nodes over those of a level.
fn parents(below: Level, memory: &mut Memory) -> Level {
    let mut level = Level::default();
    let sizes = parts(below.nodes.len(), CHILDREN_MAX);
    let mut nodes = below.nodes.into_iter();
    let mut separators = below.separators.into_iter();
    for size in sizes {
        let mut inner = Inner::new(memory);
        inner.children.extend(nodes.by_ref().take(size));
        inner.separators.extend(separators.by_ref().take(size - 1));
        level.nodes.push(Subtree::of_inner(inner));
        level.separators.extend(separators.next());
    }
    level
}

/// The sizes of as few parts as possible, which differ by at most one.
fn parts(len: usize, max: usize) -> impl Iterator<Item = usize> {
    let count = len.div_ceil(max);
    (0..count).map(move |part| len / count + usize::from(part < len % count))
}
