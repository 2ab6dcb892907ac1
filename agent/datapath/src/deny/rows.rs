//! The entries that a list of prefixes needs in the kernel, and the changes from one list to the next. Pure.
//!
//! The kernel uses the longest prefix only. So a prefix inside one that ends no earlier has no entry: an entry that is over would
//! hide the shorter one.

use std::cmp::Ordering;
use std::net::IpAddr;

use dormouse_agent_services::Prefix;

use crate::arrays::octets;

/// A prefix that is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The sources.
    pub prefix: Prefix,
    /// Its end, CLOCK_BOOTTIME; [`WITHOUT_END`](dormouse_ebpf::deny::WITHOUT_END): none.
    pub until_ns: u64,
}

/// An entry of the kernel's map. The order is that of the trie: a prefix is before those inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// The address, IPv4 mapped, in host order.
    pub(super) bits: u128,
    /// The length of the prefix, of the mapped one for IPv4.
    pub(super) length: u8,
    /// Its end, CLOCK_BOOTTIME.
    pub(super) until_ns: u64,
}

impl Row {
    fn of(denied: &Denied) -> Self {
        let (address, length) = (denied.prefix.address(), denied.prefix.length());
        Self {
            bits: u128::from_be_bytes(octets(address)),
            length: if address.is_ipv4() {
                96 + length
            } else {
                length
            },
            until_ns: denied.until_ns,
        }
    }

    fn key(&self) -> (u128, u8) {
        (self.bits, self.length)
    }

    fn contains(&self, other: &Self) -> bool {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.length));
        (self.bits ^ other.bits) & mask.unwrap_or(0) == 0 && self.length <= other.length
    }

    /// The prefix as users write it.
    pub(super) fn prefix(&self) -> Option<Prefix> {
        let address = IpAddr::from(self.bits.to_be_bytes()).to_canonical();
        let shorter = if address.is_ipv4() { 96 } else { 0 };
        Prefix::new(address, self.length.checked_sub(shorter)?)
    }
}

/// The entries of a list, in order.
pub(super) fn rows(denied: impl IntoIterator<Item = Denied>) -> Vec<Row> {
    let mut all: Vec<Row> = denied.into_iter().map(|one| Row::of(&one)).collect();
    // Of the same prefix the latest end first.
    all.sort_unstable_by(|a, b| {
        let by_key = a.key().cmp(&b.key());
        by_key.then_with(|| b.until_ns.cmp(&a.until_ns))
    });
    // The kept prefixes that contain the present one; each ends later than those that contain it.
    let mut around: Vec<Row> = Vec::new();
    all.retain(|row| {
        while around.last().is_some_and(|last| !last.contains(row)) {
            around.pop();
        }
        let is_needed = around
            .last()
            .is_none_or(|last| last.until_ns < row.until_ns);
        if is_needed {
            around.push(*row);
        }
        is_needed
    });
    all
}

/// The changes from one list to another, both in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Entries to insert, or with another end.
    pub(super) put: Vec<Row>,
    /// Entries to remove.
    pub(super) removed: Vec<Row>,
}

impl Changes {
    /// The changes from `before` to `after`, unless they are more than `most`.
    pub(super) fn between(before: &[Row], after: &[Row], most: usize) -> Option<Self> {
        let mut changes = Self::default();
        let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
        while changes.put.len() + changes.removed.len() <= most {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Some(changes),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key().cmp(&new.key()),
            };
            match order {
                Ordering::Less => changes.removed.extend(old.next()),
                Ordering::Greater => changes.put.extend(new.next()),
                Ordering::Equal => {
                    let same = old.next() == new.peek().copied();
                    changes.put.extend(new.next().filter(|_| !same));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ebpf::deny::WITHOUT_END;
    use proptest::prelude::*;

    use super::*;

    fn denied(text: &str, until_ns: u64) -> Denied {
        Denied {
            prefix: Prefix::parse(text).unwrap(),
            until_ns,
        }
    }

    fn texts(rows: &[Row]) -> Vec<(String, u64)> {
        let text = |row: &Row| (row.prefix().unwrap().to_string(), row.until_ns);
        rows.iter().map(text).collect()
    }

    #[test]
    fn a_prefix_inside_one_that_ends_no_earlier_has_no_entry() {
        let list = [
            denied("2001:db8:0:1::/64", 10),
            denied("2001:db8::/32", 20),
            denied("2001:db8:0:2::/64", 30),
            denied("2001:db8:0:2::7/128", 25),
            denied("192.0.2.0/24", WITHOUT_END),
            denied("192.0.2.7/32", WITHOUT_END),
            denied("192.0.2.0/24", 5),
        ];
        let wanted = [
            ("192.0.2.0/24".to_owned(), WITHOUT_END),
            ("2001:db8::/32".to_owned(), 20),
            ("2001:db8:0:2::/64".to_owned(), 30),
        ];
        assert_eq!(texts(&rows(list)), wanted);
    }

    #[test]
    fn changes_are_found_unless_they_are_too_many() {
        let before = rows([denied("192.0.2.1/32", 1), denied("192.0.2.3/32", 1)]);
        let after = rows([denied("192.0.2.2/32", 1), denied("192.0.2.3/32", 2)]);
        let changes = Changes::between(&before, &after, 3).unwrap();
        assert_eq!(changes.put, after);
        assert_eq!(changes.removed, before[..1]);
        assert_eq!(Changes::between(&before, &after, 2), None);
        assert_eq!(
            Changes::between(&after, &after, 0),
            Some(Changes::default())
        );
    }

    /// What the kernel finds: the longest prefix with the source, if it is not over.
    fn is_dropped(rows: &[Row], source: u128, now_ns: u64) -> bool {
        let one = Row {
            bits: source,
            length: 128,
            until_ns: 0,
        };
        let longest = rows.iter().filter(|row| row.contains(&one));
        let longest = longest.max_by_key(|row| row.length);
        longest.is_some_and(|row| now_ns < row.until_ns)
    }

    proptest! {
        #[test]
        fn the_longest_entry_decides_as_all_prefixes_together_would(
            list in proptest::collection::vec((0_u8..16, 120_u8..=128, 0_u64..8), 0..24),
        ) {
            let all: Vec<Denied> = list
                .iter()
                .map(|&(low, length, until_ns)| {
                    let address = IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(low)).to_be_bytes());
                    Denied { prefix: Prefix::new(address, length).unwrap(), until_ns }
                })
                .collect();
            let rows = rows(all.iter().copied());
            prop_assert!(rows.is_sorted_by_key(Row::key));
            for low in 0_u128..32 {
                let source = 0x2001_0db8 << 96 | low;
                let address = IpAddr::from(source.to_be_bytes());
                for now_ns in 0..8 {
                    let wanted = all.iter().any(|one| one.prefix.contains(address) && now_ns < one.until_ns);
                    prop_assert_eq!(is_dropped(&rows, source, now_ns), wanted);
                }
            }
        }

        #[test]
        fn changes_lead_from_each_list_to_each_other(
            before in proptest::collection::btree_map(0_u128..32, 0_u64..3, 0..32),
            after in proptest::collection::btree_map(0_u128..32, 0_u64..3, 0..32),
        ) {
            let rows = |map: &std::collections::BTreeMap<u128, u64>| -> Vec<Row> {
                map.iter().map(|(&bits, &until_ns)| Row { bits, length: 128, until_ns }).collect()
            };
            let (old, new) = (rows(&before), rows(&after));
            let changes = Changes::between(&old, &new, 64).unwrap();
            let mut map = before;
            map.extend(changes.put.iter().map(|row| (row.bits, row.until_ns)));
            for row in &changes.removed {
                map.remove(&row.bits);
            }
            prop_assert_eq!(map, after);
        }
    }
}
