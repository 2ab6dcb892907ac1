//! Memory of the tree's nodes: blocks of the leaves in a slab, inner nodes and separators counted.

use memmap2::MmapMut;

use super::{inner::Inner, leaf::LEAF_BYTES};
use crate::keyspace::slab::{Handle, Slab};

/// Bytes that an allocation of a separator takes besides the separator: its pointer in the inner
/// node is counted there; the allocator's header and rounding are not.
const ALLOCATION_OVERHEAD_BYTES: u64 = 16;

/// The blocks of leaves and the bytes of everything above them.
#[derive(Debug)]
pub(super) struct Memory {
    blocks: Slab,
    inner_bytes: u64,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            blocks: Slab::new(),
            inner_bytes: 0,
        }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.blocks.held_bytes() + self.inner_bytes
    }

    /// Bytes of inner nodes and separators.
    #[cfg(test)]
    pub(super) fn held_above_leaves(&self) -> u64 {
        self.inner_bytes
    }

    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        self.blocks.take_unmapped()
    }

    pub(super) fn block(&self, block: Handle) -> &[u8] {
        self.blocks.get(block)
    }

    pub(super) fn block_mut(&mut self, block: Handle) -> &mut [u8] {
        self.blocks.get_mut(block)
    }

    pub(super) fn allocate_block(&mut self) -> Handle {
        self.blocks.allocate(LEAF_BYTES)
    }

    pub(super) fn free_block(&mut self, block: Handle) {
        self.blocks.remove(block);
    }

    /// A separator between two neighbouring keys: the shortest string above `left` and not above
    /// `right`.
    pub(super) fn separator(&mut self, left: &[u8], right: &[u8]) -> Box<[u8]> {
        let same = left.iter().zip(right).take_while(|(l, r)| l == r).count();
        let separator = Box::from(&right[..right.len().min(same + 1)]);
        self.inner_bytes += separator_bytes(&separator);
        separator
    }

    pub(super) fn free_separator(&mut self, separator: Box<[u8]>) {
        self.inner_bytes -= separator_bytes(&separator);
        drop(separator);
    }

    pub(super) fn count_inner(&mut self) {
        self.inner_bytes += Inner::HELD_BYTES;
    }

    pub(super) fn uncount_inner(&mut self) {
        self.inner_bytes -= Inner::HELD_BYTES;
    }
}

/// Bytes that a separator holds.
pub(super) fn separator_bytes(separator: &[u8]) -> u64 {
    ALLOCATION_OVERHEAD_BYTES + separator.len() as u64
}
