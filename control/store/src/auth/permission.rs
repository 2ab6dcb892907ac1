//! Permissions of a user: the merged key ranges that its roles may read and write.

use bytes::Bytes;

use crate::proto::authpb::{Role, permission::Type};

/// The `range_end` of all keys greater than or equal to `key`.
const FROM_KEY: &[u8] = b"\0";

/// The two rights that a permission grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Ranges, watches, compares and previous values.
    Read,
    /// Puts and deletes.
    Write,
}

/// A range of keys, from `start` (inclusive) to `end` (exclusive; `None` is no end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: Bytes,
    end: Option<Bytes>,
}

impl Span {
    /// The range that the fields `key` and `range_end` of a request name.
    pub(super) fn new(key: &[u8], range_end: &[u8]) -> Self {
        let end = match range_end {
            [] => Some([key, b"\0"].concat().into()),
            FROM_KEY => None,
            end => Some(Bytes::copy_from_slice(end)),
        };
        Self {
            start: Bytes::copy_from_slice(key),
            end,
        }
    }

    /// Whether a permission may name the range: its first key is not empty, its end above it.
    pub(super) fn is_grantable(&self) -> bool {
        !self.start.is_empty() && self.end.as_ref().is_none_or(|end| *end > self.start)
    }

    /// Whether the range continues at or before the start of a later one.
    fn touches(&self, later: &Self) -> bool {
        self.end.as_ref().is_none_or(|end| *end >= later.start)
    }

    fn extend(&mut self, other: &Self) {
        if other.end.is_none()
            || self
                .end
                .as_ref()
                .is_some_and(|end| Some(end) < other.end.as_ref())
        {
            self.end.clone_from(&other.end);
        }
    }

    /// Whether it covers another range; of an empty one, the first key.
    fn covers(&self, other: &Self) -> bool {
        let Some(end) = &self.end else {
            return self.start <= other.start;
        };
        let ends_within = other.end.as_ref().is_some_and(|other_end| other_end <= end);
        self.start <= other.start && other.start < *end && ends_within
    }
}

/// Disjoint ranges in order, none adjacent to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Spans(Vec<Span>);

impl Spans {
    fn merge(mut spans: Vec<Span>) -> Self {
        spans.sort_by(|a, b| a.start.cmp(&b.start));
        let mut merged: Vec<Span> = Vec::new();
        for span in spans {
            match merged.last_mut() {
                Some(last) if last.touches(&span) => last.extend(&span),
                _ => merged.push(span),
            }
        }
        Self(merged)
    }

    fn covers(&self, span: &Span) -> bool {
        let after = self.0.partition_point(|own| own.start <= span.start);
        let last = after.checked_sub(1).and_then(|index| self.0.get(index));
        last.is_some_and(|own| own.covers(span))
    }
}

/// The ranges that a user may read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Permissions {
    read: Spans,
    write: Spans,
}

impl Permissions {
    /// The union of the permissions of the roles.
    pub(super) fn new<'a>(roles: impl IntoIterator<Item = &'a Role>) -> Self {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for permission in roles.into_iter().flat_map(|role| &role.key_permission) {
            let span = Span::new(&permission.key, &permission.range_end);
            let kind = Type::try_from(permission.perm_type);
            if matches!(kind, Ok(Type::Read | Type::Readwrite)) {
                read.push(span.clone());
            }
            if matches!(kind, Ok(Type::Write | Type::Readwrite)) {
                write.push(span);
            }
        }
        Self {
            read: Spans::merge(read),
            write: Spans::merge(write),
        }
    }

    pub(super) fn allow(&self, right: Right, span: &Span) -> bool {
        match right {
            Right::Read => self.read.covers(span),
            Right::Write => self.write.covers(span),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys of at most two letters, so that ranges touch and overlap often.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(b'a'..=b'c', 1..=2)
    }

    fn range_end() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![Just(Vec::new()), Just(FROM_KEY.to_vec()), key()]
    }

    fn grantable() -> impl Strategy<Value = Span> {
        (key(), range_end())
            .prop_map(|(key, end)| Span::new(&key, &end))
            .prop_filter("an empty range", Span::is_grantable)
    }

    fn contains(span: &Span, key: &[u8]) -> bool {
        span.start <= key && span.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// All keys of at most three letters out of `\0`, `a` to `d`: more than the ends of any range.
    fn keys() -> Vec<Vec<u8>> {
        let letters = [0, b'a', b'b', b'c', b'd'];
        let mut keys: Vec<Vec<u8>> = letters.iter().map(|&letter| vec![letter]).collect();
        for length in 1..3 {
            let longer: Vec<Vec<u8>> = keys
                .iter()
                .filter(|key| key.len() == length)
                .flat_map(|key| letters.map(|letter| [key.as_slice(), &[letter]].concat()))
                .collect();
            keys.extend(longer);
        }
        keys
    }

    proptest! {
        #[test]
        fn a_range_is_allowed_if_each_of_its_keys_is(
            granted in proptest::collection::vec(grantable(), 0..6),
            asked in grantable(),
        ) {
            let allowed = Spans::merge(granted.clone()).covers(&asked);
            let each = keys().iter().filter(|key| contains(&asked, key)).all(|key| {
                granted.iter().any(|span| contains(span, key))
            });
            // A range without an end has keys above all of these.
            let open = asked.end.is_none() && granted.iter().all(|span| span.end.is_some());
            prop_assert_eq!(allowed, each && !open);
        }

        #[test]
        fn merged_ranges_have_gaps_between_them(granted in proptest::collection::vec(grantable(), 0..6)) {
            let merged = Spans::merge(granted).0;
            for pair in merged.windows(2) {
                prop_assert!(!pair[0].touches(&pair[1]), "{:?}", pair);
            }
        }
    }

    #[test]
    fn an_empty_range_needs_the_permission_of_its_first_key() {
        let spans = Spans::merge(vec![Span::new(b"k", b"")]);
        assert!(spans.covers(&Span::new(b"k", b"k")));
        assert!(!spans.covers(&Span::new(b"l", b"a")));
    }
}
