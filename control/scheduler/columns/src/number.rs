//! Numbers of nodes, groups, cells and kinds: 32 bits in the index, which halves it; 64 bits in sums.

/// The index that a number stands for.
pub(crate) fn at(id: u32) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

/// A length, or an index, as the index keeps it.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A length as sums have it.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
