//! Iteration over the entries of the tree in order, from an edge on.

use std::slice;

use super::{
    Edge, Entry, Memory, Slab, Tree,
    leaf::ENTRY_BYTES,
    subtree::{Node, Subtree},
};

/// An iterator over entries. It borrows the tree; a read in slices seeks again at the key after
/// the last one that it returned.
#[derive(Debug)]
pub(in crate::keyspace) struct Cursor<'a> {
    memory: &'a Memory,
    /// The subtrees that are still ahead, of each level from the root down.
    ahead: Vec<slice::Iter<'a, Subtree>>,
    leaf: slice::Iter<'a, [u8; ENTRY_BYTES]>,
    live_only: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(tree: &'a Tree, records: &Slab, edge: Edge<'_>) -> Self {
        let mut cursor = Self {
            memory: &tree.memory,
            ahead: Vec::new(),
            leaf: [].iter(),
            live_only: false,
        };
        let mut next = tree.root.as_ref();
        while let Some(subtree) = next {
            next = cursor.descend(subtree, records, edge);
        }
        cursor
    }

    /// The cursor without the cells of deleted keys.
    pub(super) fn live(self) -> Self {
        Self {
            live_only: true,
            ..self
        }
    }

    /// One step towards the edge; returns the child that it is in.
    fn descend(
        &mut self,
        subtree: &'a Subtree,
        records: &Slab,
        edge: Edge<'_>,
    ) -> Option<&'a Subtree> {
        match &subtree.node {
            Node::Leaf(leaf) => {
                let position = leaf.position(records, self.memory, edge);
                self.leaf = leaf.bytes(self.memory)[position..].iter();
                None
            }
            Node::Inner(inner) => {
                let mut ahead = inner.children[inner.child_at(edge)..].iter();
                let child = ahead.next();
                self.ahead.push(ahead);
                child
            }
        }
    }

    /// Enters the next leaf; `None` behind the last one.
    fn next_leaf(&mut self) -> Option<()> {
        loop {
            let level = self.ahead.last_mut()?;
            match level.next() {
                None => drop(self.ahead.pop()),
                Some(subtree) if self.live_only && subtree.live == 0 => {}
                Some(subtree) => match &subtree.node {
                    Node::Inner(inner) => self.ahead.push(inner.children.iter()),
                    Node::Leaf(leaf) => {
                        self.leaf = leaf.bytes(self.memory).iter();
                        return Some(());
                    }
                },
            }
        }
    }
}

impl Iterator for Cursor<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let live_only = self.live_only;
            let mut entries = self
                .leaf
                .by_ref()
                .filter_map(|bytes| Entry::from_bytes(*bytes));
            if let Some(entry) = entries.find(|entry| entry.live || !live_only) {
                return Some(entry);
            }
            self.next_leaf()?;
        }
    }
}
