//! Which keys a request means, from its two fields `key` and `range_end`.

use std::ops::Bound;

use bytes::Bytes;

/// `range_end` that means "every key from here on".
const FROM_KEY: &[u8] = b"\0";

/// A set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// One key.
    One(Bytes),
    /// From the first key (included) to the second (excluded); may be empty.
    Span(Bytes, Bytes),
    /// The key and all above it.
    From(Bytes),
}

impl KeyRange {
    /// Reads the fields of a request.
    pub fn new(key: &Bytes, range_end: &Bytes) -> Self {
        match range_end.as_ref() {
            [] => Self::One(key.clone()),
            FROM_KEY => Self::From(key.clone()),
            _ => Self::Span(key.clone(), range_end.clone()),
        }
    }

    /// Whether the range has the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(only) => only == key,
            Self::Span(start, end) => start <= key && key < end.as_ref(),
            Self::From(start) => start <= key,
        }
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Span(start, end) if end <= start)
    }

    /// The range as bounds of an ordered map; only for ranges that are not empty.
    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match self {
            Self::One(key) => (Bound::Included(key), Bound::Included(key)),
            Self::Span(start, end) => (Bound::Included(start), Bound::Excluded(end)),
            Self::From(start) => (Bound::Included(start), Bound::Unbounded),
        }
    }
}
