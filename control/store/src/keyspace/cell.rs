//! The layout of a key's cell: the handle of its latest version, then the key.

/// Bytes before the key: the handle of the latest version.
pub(super) const CELL_HEADER_BYTES: usize = 8;

/// The key of a cell.
pub(super) fn key_of(cell: &[u8]) -> &[u8] {
    &cell[CELL_HEADER_BYTES..]
}
