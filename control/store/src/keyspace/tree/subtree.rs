//! The recursive operations of the tree.

use super::{
    Edge, Entry, Handle, Memory, Slab,
    inner::{CHILDREN_MIN, Inner},
    leaf::{LEAF_ENTRIES_MIN, Leaf},
};

/// A node and the number of live keys below it.
#[derive(Debug)]
pub(super) struct Subtree {
    pub(super) live: u64,
    pub(super) node: Node,
}

/// A node. All leaves have the same depth.
#[derive(Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    Inner(Box<Inner>),
}

/// The part of a node that moved to a new node on its right.
#[derive(Debug)]
pub(super) struct Split {
    /// Above all keys of the left node and not above those of the right one.
    pub(super) separator: Box<[u8]>,
    pub(super) right: Subtree,
}

impl Subtree {
    pub(super) fn leaf_of(entries: &[Entry], memory: &mut Memory) -> Self {
        Self {
            live: entries.iter().filter(|entry| entry.live).count() as u64,
            node: Node::Leaf(Leaf::new(entries, memory)),
        }
    }

    pub(super) fn of_inner(inner: Inner) -> Self {
        Self {
            live: inner.children.iter().map(|child| child.live).sum(),
            node: Node::Inner(Box::new(inner)),
        }
    }

    /// Inserts an entry; returns the part that moved to a new node on the right.
    pub(super) fn insert(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        entry: Entry,
    ) -> Option<Split> {
        let split = match &mut self.node {
            Node::Leaf(leaf) => leaf.insert(records, memory, entry),
            Node::Inner(inner) => inner.insert(records, memory, entry),
        };
        self.live += u64::from(entry.live);
        self.live -= split.as_ref().map_or(0, |split| split.right.live);
        split
    }

    /// Removes the entry of a cell.
    pub(super) fn remove(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        cell: Handle,
    ) -> Option<Entry> {
        let removed = match &mut self.node {
            Node::Leaf(leaf) => leaf.remove(records, memory, cell),
            Node::Inner(inner) => inner.remove(records, memory, cell),
        }?;
        self.live -= u64::from(removed.live);
        Some(removed)
    }

    /// Overwrites the entry of a cell; returns whether that changed it.
    pub(super) fn set(&mut self, records: &Slab, memory: &mut Memory, entry: Entry) -> bool {
        let changed = match &mut self.node {
            Node::Leaf(leaf) => leaf.set(records, memory, entry),
            Node::Inner(inner) => {
                let at = inner.child_of(entry.key(records));
                inner.children[at].set(records, memory, entry)
            }
        };
        match (changed, entry.live) {
            (false, _) => {}
            (true, true) => self.live += 1,
            (true, false) => self.live -= 1,
        }
        changed
    }

    /// Marks the keys between two edges as deleted; returns how many were live.
    pub(super) fn kill(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        edges: [Edge<'_>; 2],
    ) -> u64 {
        let killed = match &mut self.node {
            Node::Leaf(leaf) => leaf.kill(records, memory, edges),
            Node::Inner(inner) => inner.kill(records, memory, edges),
        };
        self.live -= killed;
        killed
    }

    /// Number of live keys in front of the edge.
    pub(super) fn live_before(&self, records: &Slab, memory: &Memory, edge: Edge<'_>) -> u64 {
        match &self.node {
            Node::Leaf(leaf) => leaf.live_before(memory, leaf.position(records, memory, edge)),
            Node::Inner(inner) => {
                let at = inner.child_at(edge);
                let whole: u64 = inner.children[..at].iter().map(|child| child.live).sum();
                whole + inner.children[at].live_before(records, memory, edge)
            }
        }
    }

    /// Whether the node has too few entries or children to stay alone.
    pub(super) fn is_small(&self) -> bool {
        match &self.node {
            Node::Leaf(leaf) => leaf.len < LEAF_ENTRIES_MIN,
            Node::Inner(inner) => inner.children.len() < CHILDREN_MIN,
        }
    }

    /// Appends the neighbour on the right; what does not fit well moves back to a new node.
    pub(super) fn join(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        neighbour: Split,
    ) -> Option<Split> {
        let Split { separator, right } = neighbour;
        let split = match (&mut self.node, right.node) {
            (Node::Leaf(leaf), Node::Leaf(right)) => {
                memory.free_separator(separator);
                leaf.join(records, memory, &right)
            }
            (Node::Inner(inner), Node::Inner(right)) => inner.join(memory, separator, *right),
            _ => unreachable!("all leaves have the same depth"),
        };
        self.live += right.live;
        self.live -= split.as_ref().map_or(0, |split| split.right.live);
        split
    }

    /// Puts a node above this one, the root, and the part that moved out of it.
    pub(super) fn raise(self, split: Split, memory: &mut Memory) -> Self {
        let mut inner = Inner::new(memory);
        inner.children.extend([self, split.right]);
        inner.separators.push(split.separator);
        Self::of_inner(inner)
    }

    /// The root without what is superfluous in it: a node with one child, or an empty leaf.
    pub(super) fn reduced(self, memory: &mut Memory) -> Option<Self> {
        match self.node {
            Node::Leaf(leaf) if leaf.len == 0 => {
                memory.free_block(leaf.block);
                None
            }
            Node::Inner(mut inner) if inner.children.len() == 1 => {
                memory.uncount_inner();
                inner.children.pop()
            }
            _ => Some(self),
        }
    }
}
