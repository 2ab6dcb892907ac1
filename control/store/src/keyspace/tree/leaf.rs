//! Leaves: blocks of sorted entries.

use super::{
    Edge, Handle, Memory, Slab, key_of,
    subtree::{Split, Subtree},
};

/// Entries of a full leaf.
pub(super) const LEAF_ENTRIES_MAX: usize = 64;

/// A leaf with fewer entries is joined with a neighbour or takes entries from it.
pub(super) const LEAF_ENTRIES_MIN: usize = LEAF_ENTRIES_MAX / 4;

/// Entries of two leaves that become one; more are divided between them.
const LEAF_ENTRIES_JOINED_MAX: usize = LEAF_ENTRIES_MAX * 3 / 4;

/// Bytes of a leaf's block.
pub(super) const LEAF_BYTES: usize = LEAF_ENTRIES_MAX * ENTRY_BYTES;

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = size_of::<usize>();

/// Set in the entry of a live cell, above the bits of the handle.
const LIVE: usize = 1 << Handle::BITS;

/// A cell in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) struct Entry {
    /// The cell.
    pub(in crate::keyspace) cell: Handle,
    /// Whether its key exists now.
    pub(in crate::keyspace) live: bool,
}

impl Entry {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        self.to_bits().to_le_bytes()
    }

    /// `None` for zeros, which no entry is.
    pub(super) fn from_bytes(bytes: [u8; ENTRY_BYTES]) -> Option<Self> {
        Self::from_bits(usize::from_le_bytes(bytes))
    }

    /// The entry as a number below `2 << Handle::BITS`, never 0.
    pub(super) fn to_bits(self) -> usize {
        let live = if self.live { LIVE } else { 0 };
        self.cell.bits() | live
    }

    /// `None` for 0.
    pub(super) fn from_bits(bits: usize) -> Option<Self> {
        let live = bits & LIVE != 0;
        Handle::from_bits(bits).map(|cell| Self { cell, live })
    }

    pub(super) fn key(self, records: &Slab) -> &[u8] {
        key_of(records.get(self.cell))
    }
}

/// A leaf: the first `len` entries of its block.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) block: Handle,
    pub(super) len: usize,
}

impl Leaf {
    /// A new leaf with at most [`LEAF_ENTRIES_MAX`] entries.
    pub(super) fn new(entries: &[Entry], memory: &mut Memory) -> Self {
        let mut leaf = Self {
            block: memory.allocate_block(),
            len: 0,
        };
        leaf.replace(entries, memory);
        leaf
    }

    /// Replaces all entries.
    fn replace(&mut self, entries: &[Entry], memory: &mut Memory) {
        for (slot, entry) in self.slots(memory).iter_mut().zip(entries) {
            *slot = entry.to_bytes();
        }
        self.len = entries.len();
    }

    /// The bytes of the entries.
    pub(super) fn bytes<'m>(&self, memory: &'m Memory) -> &'m [[u8; ENTRY_BYTES]] {
        let (entries, _) = memory.block(self.block).as_chunks();
        &entries[..self.len]
    }

    /// The entries in order.
    pub(super) fn entries<'m>(&self, memory: &'m Memory) -> impl Iterator<Item = Entry> + use<'m> {
        let entries = self.bytes(memory).iter();
        entries.filter_map(|bytes| Entry::from_bytes(*bytes))
    }

    /// Number of entries in front of the edge.
    pub(super) fn position(&self, records: &Slab, memory: &Memory, edge: Edge<'_>) -> usize {
        self.bytes(memory).partition_point(|bytes| {
            Entry::from_bytes(*bytes).is_some_and(|entry| edge.is_above(entry.key(records)))
        })
    }

    /// Number of live entries in front of a position.
    pub(super) fn live_before(&self, memory: &Memory, position: usize) -> u64 {
        let before = self.entries(memory).take(position);
        before.filter(|entry| entry.live).count() as u64
    }

    /// The position of a cell; `None` if its key belongs to another cell or to none.
    fn find(&self, records: &Slab, memory: &Memory, cell: Handle) -> Option<usize> {
        let key = key_of(records.get(cell));
        let at = self.position(records, memory, Edge::Before(key));
        let entry = Entry::from_bytes(*self.bytes(memory).get(at)?)?;
        (entry.cell == cell).then_some(at)
    }

    /// Inserts an entry; the right part of a leaf that was full moves to a new one.
    pub(super) fn insert(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        entry: Entry,
    ) -> Option<Split> {
        let at = self.position(records, memory, Edge::Before(entry.key(records)));
        if self.len < LEAF_ENTRIES_MAX {
            let slots = self.slots(memory);
            slots.copy_within(at..slots.len() - 1, at + 1);
            slots[at] = entry.to_bytes();
            self.len += 1;
            return None;
        }
        let mut entries: Vec<Entry> = self.entries(memory).collect();
        entries.insert(at, entry);
        // Keys that come in ascending order leave full leaves behind.
        let kept = if at == LEAF_ENTRIES_MAX {
            at
        } else {
            entries.len() / 2
        };
        Some(self.divide(records, memory, entries.split_at(kept)))
    }

    /// Removes the entry of a cell.
    pub(super) fn remove(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        cell: Handle,
    ) -> Option<Entry> {
        let at = self.find(records, memory, cell)?;
        let slots = self.slots(memory);
        let removed = Entry::from_bytes(slots[at]);
        slots.copy_within(at + 1.., at);
        self.len -= 1;
        removed
    }

    /// Overwrites the entry of a cell; returns whether it was another one.
    pub(super) fn set(&self, records: &Slab, memory: &mut Memory, entry: Entry) -> bool {
        let Some(at) = self.find(records, memory, entry.cell) else {
            return false;
        };
        let slot = &mut self.slots(memory)[at];
        std::mem::replace(slot, entry.to_bytes()) != entry.to_bytes()
    }

    /// Marks the entries between two edges as those of deleted keys; returns how many were live.
    pub(super) fn kill(&self, records: &Slab, memory: &mut Memory, edges: [Edge<'_>; 2]) -> u64 {
        let [from, to] = edges.map(|edge| self.position(records, memory, edge));
        let mut killed = 0;
        for slot in self.slots(memory).get_mut(from..to).unwrap_or_default() {
            if let Some(entry) = Entry::from_bytes(*slot) {
                killed += u64::from(entry.live);
                *slot = Entry {
                    live: false,
                    ..entry
                }
                .to_bytes();
            }
        }
        killed
    }

    /// Appends the entries of the neighbour on the right; what does not fit well moves back to a
    /// new one.
    pub(super) fn join(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        right: &Self,
    ) -> Option<Split> {
        let entries: Vec<Entry> = self.entries(memory).chain(right.entries(memory)).collect();
        memory.free_block(right.block);
        if entries.len() > LEAF_ENTRIES_JOINED_MAX {
            return Some(self.divide(records, memory, entries.split_at(entries.len() / 2)));
        }
        self.replace(&entries, memory);
        None
    }

    /// Keeps the left entries, and moves the right ones to a new leaf. Both are not empty.
    fn divide(
        &mut self,
        records: &Slab,
        memory: &mut Memory,
        (left, right): (&[Entry], &[Entry]),
    ) -> Split {
        self.replace(left, memory);
        let [.., last] = left else {
            unreachable!("a leaf keeps entries")
        };
        let [first, ..] = right else {
            unreachable!("entries move")
        };
        Split {
            separator: memory.separator(last.key(records), first.key(records)),
            right: Subtree::leaf_of(right, memory),
        }
    }

    /// The whole block.
    fn slots<'m>(&self, memory: &'m mut Memory) -> &'m mut [[u8; ENTRY_BYTES]] {
        memory.block_mut(self.block).as_chunks_mut().0
    }
}
