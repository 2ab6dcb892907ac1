//! Many entries in the order of their keys: sorted by eight bytes of the keys at a time, so that a
//! key is read a few times and not for each comparison.

use super::{Entry, Handle, Slab};

/// Bytes of a key that are compared at once.
const WINDOW_BYTES: usize = size_of::<u64>();

/// Bytes inside the window of a key that ends behind it.
const BEYOND: usize = WINDOW_BYTES + 1;

/// Position of that number above the bits of an entry.
const INSIDE_SHIFT: u32 = Handle::BITS + 1;

/// An entry, and the bytes of its key inside a window: those behind the key's end are 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    window: u64,
    /// The entry, and above it the number of bytes inside the window, or [`BEYOND`]: of keys with the
    /// same bytes the shorter ones come first.
    entry: usize,
}

impl Item {
    fn new(entry: Entry) -> Self {
        let entry = entry.to_bits();
        Self { window: 0, entry }
    }

    /// `None` for no entry, which no item has.
    fn entry(self) -> Option<Entry> {
        Entry::from_bits(self.entry & ((1 << INSIDE_SHIFT) - 1))
    }

    fn key(self, records: &Slab) -> &[u8] {
        self.entry().map_or(&[], |entry| entry.key(records))
    }

    /// Moves the window to an offset in the key.
    fn move_to(&mut self, records: &Slab, offset: usize) {
        let rest = self.key(records).get(offset..).unwrap_or_default();
        let inside = rest.len().min(WINDOW_BYTES);
        let mut window = [0; WINDOW_BYTES];
        window[..inside].copy_from_slice(&rest[..inside]);
        self.window = u64::from_be_bytes(window);
        self.entry &= (1 << INSIDE_SHIFT) - 1;
        self.entry |= rest.len().min(BEYOND) << INSIDE_SHIFT;
    }

    fn is_beyond(self) -> bool {
        self.entry >> INSIDE_SHIFT == BEYOND
    }
}

/// Sorts entries with different keys by these.
pub(super) fn sorted(records: &Slab, entries: impl Iterator<Item = Entry>) -> Vec<Entry> {
    let mut items: Vec<Item> = entries.map(Item::new).collect();
    // Ranges of items whose keys agree up to an offset.
    let mut unsorted = vec![(0..items.len(), 0)];
    while let Some((range, offset)) = unsorted.pop() {
        let mut start = range.start;
        let items = &mut items[range];
        let offset = offset + common(records, items, offset);
        for item in &mut *items {
            item.move_to(records, offset);
        }
        items.sort_unstable();
        for same in items.chunk_by(|a, b| a.window == b.window) {
            // Those that end inside the window differ in their length.
            let ended = same.partition_point(|item| !item.is_beyond());
            let beyond = start + ended..start + same.len();
            start = beyond.end;
            if beyond.len() > 1 {
                unsorted.push((beyond, offset + WINDOW_BYTES));
            }
        }
    }
    items.into_iter().filter_map(Item::entry).collect()
}

/// The number of bytes from an offset on in which all keys agree.
fn common(records: &Slab, items: &[Item], offset: usize) -> usize {
    let mut keys = items.iter().map(|item| &item.key(records)[offset..]);
    let Some(mut common) = keys.next() else {
        return 0;
    };
    for key in keys {
        if !key.starts_with(common) {
            let same = common.iter().zip(key).take_while(|(a, b)| a == b);
            common = &common[..same.count()];
        }
    }
    common.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keyspace::cell::CELL_HEADER_BYTES;

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![8 => Just(b'a'), 2 => Just(0), 1 => any::<u8>()]
    }

    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let keys = prop::collection::btree_set(prop::collection::vec(byte(), 0..40), 0..200);
        keys.prop_map(Vec::from_iter).prop_shuffle()
    }

    proptest! {
        #[test]
        fn entries_are_sorted_as_their_keys_are(
            mut keys in keys(), prefix in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut slab = Slab::new();
            let entries: Vec<_> = keys
                .iter()
                .map(|key| Entry {
                    cell: slab.insert(&[&[0; CELL_HEADER_BYTES], &prefix, key]),
                    live: key.len().is_multiple_of(2),
                })
                .collect();
            let sorted = sorted(&slab, entries.into_iter());
            keys.sort();
            prop_assert_eq!(sorted.len(), keys.len());
            for (entry, key) in sorted.iter().zip(&keys) {
                prop_assert_eq!(&entry.key(&slab)[prefix.len()..], key);
                prop_assert_eq!(entry.live, key.len().is_multiple_of(2));
            }
        }
    }
}
