//! The layout of a key's cell: the handle of its latest version, then the key.

use super::slab::{Handle, Slab};

/// Bytes before the key: the handle of the latest version.
pub(super) const CELL_HEADER_BYTES: usize = 8;

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
    Handle::from_bytes(*slab.get(cell).first_chunk()?)
}

/// Replaces the latest version of a cell.
pub(super) fn set_latest(slab: &mut Slab, cell: Handle, version: Handle) {
    slab.get_mut(cell)[..CELL_HEADER_BYTES].copy_from_slice(&Handle::to_bytes(Some(version)));
}
