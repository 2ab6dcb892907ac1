//! The layout of a key's cell: the handle of its latest version, then the key.

use super::slab::{Handle, Slab};

/// Bytes before the key: the handle of the latest version.
pub(super) const CELL_HEADER_BYTES: usize = 8;

/// Set above the handle's bits while the key exists: the latest version then does not have to be read.
const LIVE: usize = 1 << Handle::BITS;

/// The key of a cell.
pub(super) fn key_of(cell: &[u8]) -> &[u8] {
    &cell[CELL_HEADER_BYTES..]
}

/// Stores the cell of a new key, without a version.
pub(super) fn insert(slab: &mut Slab, key: &[u8]) -> Handle {
    slab.insert(&[&Handle::to_bytes(None), key])
}

/// The latest version of a cell; every cell in the indexes has one.
pub(super) fn latest(slab: &Slab, cell: Handle) -> Option<Handle> {
    Handle::from_bits(header(slab, cell))
}

/// Whether the key of a cell exists now.
pub(super) fn is_live(slab: &Slab, cell: Handle) -> bool {
    header(slab, cell) & LIVE != 0
}

/// Replaces the latest version of a cell; a tombstone is not live.
pub(super) fn set_latest(slab: &mut Slab, cell: Handle, (version, live): (Handle, bool)) {
    let live = if live { LIVE } else { 0 };
    let header = (version.bits() | live).to_le_bytes();
    slab.get_mut(cell)[..CELL_HEADER_BYTES].copy_from_slice(&header);
}

fn header(slab: &Slab, cell: Handle) -> usize {
    let header = slab.get(cell).first_chunk();
    header.map_or(0, |header| usize::from_le_bytes(*header))
}
