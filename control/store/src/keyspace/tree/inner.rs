//! Inner nodes: subtrees, and between two of them a key that separates them.

use super::{
    Edge, Entry, Handle, Memory, Slab, key_of,
    subtree::{Split, Subtree},
};

/// Children of a full inner node.
pub(super) const CHILDREN_MAX: usize = 64;

/// An inner node with fewer children is joined with a neighbour or takes children from it.
pub(super) const CHILDREN_MIN: usize = CHILDREN_MAX / 4;

/// Children of two inner nodes that become one; more are divided between them.
const CHILDREN_JOINED_MAX: usize = CHILDREN_MAX * 3 / 4;

/// Space for the children of a full node and of the small neighbour that joins it.
const CHILDREN_SPACE: usize = CHILDREN_MAX + CHILDREN_MIN;

/// The children of an inner node, at least two. Separator `n` is above all keys of child `n` and not above those
/// of child `n + 1`.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) children: Vec<Subtree>,
    pub(super) separators: Vec<Box<[u8]>>,
}

impl Inner {
    /// Bytes of a node without its separators' contents: both vectors have [`CHILDREN_SPACE`].
    pub(super) const HELD_BYTES: u64 = (size_of::<Self>()
        + CHILDREN_SPACE * (size_of::<Subtree>() + size_of::<Box<[u8]>>()))
        as u64;

    pub(super) fn new(memory: &mut Memory) -> Self {
        memory.count_inner();
        Self {
            children: Vec::with_capacity(CHILDREN_SPACE),
            separators: Vec::with_capacity(CHILDREN_SPACE),
        }
    }

    /// The child whose keys a key belongs to.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.separators
            .partition_point(|separator| separator.as_ref() <= key)
    }

    /// The child that an edge is in.
    pub(super) fn child_at(&self, edge: Edge<'_>) -> usize {
        match edge {
            Edge::Start => 0,
            Edge::Before(key) | Edge::After(key) => self.child_of(key),
            Edge::End => self.separators.len(),
        }
    }

    /// Inserts an entry below; the right half of a node that was full moves to a new one.
    pub(super) fn insert(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        entry: Entry,
    ) -> Option<Split> {
        let at = self.child_of(entry.key(records));
        let split = self.children[at].insert(records, memory, entry)?;
        self.insert_split(at, split);
        let full = self.children.len() > CHILDREN_MAX;
        full.then(|| self.divide(memory))
    }

    /// Removes the entry of a cell below.
    pub(super) fn remove(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        cell: Handle,
    ) -> Option<Entry> {
        let at = self.child_of(key_of(records.get(cell)));
        let removed = self.children[at].remove(records, memory, cell)?;
        if self.children[at].is_small() {
            self.refill(records, memory, at);
        }
        Some(removed)
    }

    /// Marks the keys between two edges as deleted; returns how many were live.
    pub(super) fn kill(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        [from, to]: [Edge<'_>; 2],
    ) -> u64 {
        let (first, last) = (self.child_at(from), self.child_at(to));
        let mut killed = 0;
        for at in first..=last {
            let from = if at == first { from } else { Edge::Start };
            let to = if at == last { to } else { Edge::End };
            killed += self.children[at].kill(records, memory, [from, to]);
        }
        killed
    }

    /// Appends the children of the neighbour on the right; what does not fit well moves back.
    pub(super) fn join(
        &mut self,
        memory: &mut Memory,
        separator: Box<[u8]>,
        right: Self,
    ) -> Option<Split> {
        self.separators.push(separator);
        self.separators.extend(right.separators);
        self.children.extend(right.children);
        memory.uncount_inner();
        let full = self.children.len() > CHILDREN_JOINED_MAX;
        full.then(|| self.divide(memory))
    }

    /// Joins a small child with a neighbour, or divides the entries of both between them.
    fn refill(&mut self, records: &Slab, memory: &mut Memory, at: usize) {
        let left = at.min(self.children.len() - 2);
        let right = Split {
            separator: self.separators.remove(left),
            right: self.children.remove(left + 1),
        };
        if let Some(split) = self.children[left].join(records, memory, right) {
            self.insert_split(left, split);
        }
    }

    /// Moves the right half of the children to a new node.
    fn divide(&mut self, memory: &mut Memory) -> Split {
        let kept = self.children.len() / 2;
        let mut right = Self::new(memory);
        right.children.extend(self.children.drain(kept..));
        right.separators.extend(self.separators.drain(kept..));
        Split {
            separator: self.separators.remove(kept - 1),
            right: Subtree::of_inner(right),
        }
    }

    fn insert_split(&mut self, at: usize, split: Split) {
        self.separators.insert(at, split.separator);
        self.children.insert(at + 1, split.right);
    }
}
