//! Revisions that cannot be read after a restart: those from before it, of prefixes of which the end
//! of a run may have lost writes. A client that holds such a revision must list again.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Error,
    keyspace::{KeyRange, Revision},
    proto::etcdserverpb::RangeRequest,
};

/// The prefixes with losses, each with the revision up to which its history is incomplete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    floors: BTreeMap<Bytes, Revision>,
}

impl Lost {
    /// The prefixes may have lost writes up to a revision.
    pub(crate) fn add(&mut self, prefixes: impl IntoIterator<Item = Bytes>, floor: Revision) {
        for prefix in prefixes {
            let known = self.floors.entry(prefix).or_insert(floor);
            *known = floor.max(*known);
        }
    }

    /// The prefixes and their floors.
    pub(crate) fn floors(&self) -> impl Iterator<Item = (&Bytes, Revision)> {
        self.floors.iter().map(|(prefix, floor)| (prefix, *floor))
    }

    /// The revision up to which the history of a range is incomplete, if it is.
    pub(crate) fn floor(&self, range: &KeyRange) -> Option<Revision> {
        let overlapping = self
            .floors
            .iter()
            .filter(|(prefix, _)| overlaps(range, prefix));
        overlapping.map(|(_, floor)| *floor).max()
    }

    /// Refuses a read at a revision from before a restart that may have lost keys of the range.
    pub(crate) fn check(&self, request: &RangeRequest) -> Result<(), Error> {
        let range = KeyRange::new(&request.key, &request.range_end);
        if self.hides(&range, request.revision) {
            return Err(Error::Compacted);
        }
        Ok(())
    }

    /// Whether a read of a range at a named revision would miss keys.
    pub(crate) fn hides(&self, range: &KeyRange, revision: Revision) -> bool {
        revision > 0 && self.floor(range).is_some_and(|floor| revision < floor)
    }
}

/// Whether the range may contain a key with the prefix.
pub(super) fn overlaps(range: &KeyRange, prefix: &[u8]) -> bool {
    match range {
        KeyRange::One(key) => key.starts_with(prefix),
        KeyRange::Span(start, end) => prefix < end.as_ref() && start_is_within(start, prefix),
        KeyRange::From(start) => start_is_within(start, prefix),
    }
}

/// Whether there are keys with the prefix at or after `start`.
fn start_is_within(start: &[u8], prefix: &[u8]) -> bool {
    start <= prefix || start.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(key: &[u8], end: &[u8]) -> KeyRange {
        KeyRange::new(&Bytes::copy_from_slice(key), &Bytes::copy_from_slice(end))
    }

    #[test]
    fn a_range_is_incomplete_below_the_highest_floor_of_its_prefixes() {
        let mut lost = Lost::default();
        lost.add([Bytes::from_static(b"/a/"), Bytes::from_static(b"/b/")], 10);
        lost.add([Bytes::from_static(b"/b/")], 20);
        assert_eq!(lost.floor(&range(b"/a/x", b"")), Some(10));
        assert_eq!(lost.floor(&range(b"/a/", b"/c")), Some(20));
        assert_eq!(lost.floor(&range(b"/c", b"")), None);
        assert!(lost.hides(&range(b"/a/", b"/a0"), 9));
        assert!(!lost.hides(&range(b"/a/", b"/a0"), 10));
        assert!(!lost.hides(&range(b"/a/", b"/a0"), 0));
    }

    proptest! {
        /// A range that contains a key with the prefix overlaps it.
        #[test]
        fn no_overlap_is_missed(
            (prefix, rest) in ("[ab]{0,3}", "[ab\\x00]{0,3}"),
            (start, end) in ("[ab]{1,4}", "[abc\\x00]{0,4}"),
        ) {
            let key = prefix.clone() + &rest;
            let range = range(start.as_bytes(), end.as_bytes());
            if range.contains(key.as_bytes()) {
                prop_assert!(overlaps(&range, prefix.as_bytes()));
            }
        }
    }
}
