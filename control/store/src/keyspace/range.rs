//! Key ranges, from the fields `key` and `range_end` of a request.

use std::ops::Bound;

use bytes::Bytes;

/// The `range_end` that selects all keys greater than or equal to `key`.
const FROM_KEY: &[u8] = b"\0";

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// One key.
    One(Bytes),
    /// Keys from the first (inclusive) to the second (exclusive); may be empty.
    Span(Bytes, Bytes),
    /// All keys greater than or equal to the key.
    From(Bytes),
}

impl KeyRange {
    /// The range that the fields of a request name.
    pub fn new(key: &Bytes, range_end: &Bytes) -> Self {
        match range_end.as_ref() {
            [] => Self::One(key.clone()),
            FROM_KEY => Self::From(key.clone()),
            _ => Self::Span(key.clone(), range_end.clone()),
        }
    }

    /// The fields `key` and `range_end` that name the range.
    pub fn fields(&self) -> (Bytes, Bytes) {
        match self {
            Self::One(key) => (key.clone(), Bytes::new()),
            Self::Span(key, range_end) => (key.clone(), range_end.clone()),
            Self::From(key) => (key.clone(), Bytes::from_static(FROM_KEY)),
        }
    }

    /// Whether the range contains the key.
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

    /// Bytes of the keys that name the range.
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::One(key) | Self::From(key) => key.len(),
            Self::Span(start, end) => start.len() + end.len(),
        };
        bytes as u64
    }

    /// The range as bounds of a `BTreeMap`, which panics on the bounds of an empty range.
    pub(super) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        match self {
            Self::One(key) => (Bound::Included(key), Bound::Included(key)),
            Self::Span(start, end) => (Bound::Included(start), Bound::Excluded(end)),
            Self::From(start) => (Bound::Included(start), Bound::Unbounded),
        }
    }
}
