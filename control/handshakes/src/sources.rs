//! Connections whose clients have not shown who they are, by their source: when all places are taken, one source cannot keep another
//! out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Age from which a connection gives its place to another one of its source: a handshake is over in less, unless the client is silent or the
/// host overloaded.
const OLD: Duration = Duration::from_secs(1);

/// The source of a connection from an address: a host has all addresses of an IPv6 /64.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(prefix.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Connections by source, with a value for each. Times are those of a monotonic clock.
#[derive(Debug)]
pub struct Sources<T> {
    max: usize,
    next: u64,
    count: usize,
    /// By source and in the order of their begin.
    of: BTreeMap<IpAddr, BTreeMap<u64, (Duration, T)>>,
    /// Sources by the number of their connections.
    sizes: BTreeSet<(usize, IpAddr)>,
    /// The source of each connection, in the order of their begin.
    ages: BTreeMap<u64, IpAddr>,
}

/// A connection in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    source: IpAddr,
    number: u64,
}

/// Whether there is a place for one more connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Room<T> {
    /// One is free.
    Free,
    /// This connection has lost its place: it is the oldest of the source with the most, or, where each has one, the oldest of all.
    Instead(T),
    /// None: its source has the most, or each has one, and all of them began a moment ago.
    None,
}

impl<T> Sources<T> {
    /// Without any connection, and with room for `max`, at least one.
    pub fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            next: 0,
            count: 0,
            of: BTreeMap::new(),
            sizes: BTreeSet::new(),
            ages: BTreeMap::new(),
        }
    }

    /// Makes room for a connection of this source.
    pub fn make_room(&mut self, source: IpAddr, now: Duration) -> Room<T> {
        if self.count < self.max {
            return Room::Free;
        }
        let Some((most, heaviest)) = self.sizes.last().copied() else {
            return Room::Free;
        };
        let own = self.size(source);
        // A source that would have as many as the heaviest takes no place of it: both would take them from each other for ever.
        let (loser, is_light) = match self.ages.first_key_value() {
            _ if own + 1 < most => (heaviest, false),
            Some((_, oldest)) if own == 0 => (*oldest, true),
            _ => (source, true),
        };
        let oldest = self.of.get(&loser).and_then(BTreeMap::first_key_value);
        let Some((number, (began, _))) = oldest else {
            return Room::None;
        };
        if is_light && now.saturating_sub(*began) < OLD {
            return Room::None;
        }
        let number = *number;
        match self.remove(Number {
            source: loser,
            number,
        }) {
            Some(value) => Room::Instead(value),
            None => Room::None,
        }
    }

    /// Adds a connection for which there is room.
    pub fn insert(&mut self, source: IpAddr, now: Duration, value: T) -> Number {
        let number = self.next;
        self.next += 1;
        self.count += 1;
        self.sizes.remove(&(self.size(source), source));
        let of = self.of.entry(source).or_default();
        of.insert(number, (now, value));
        self.sizes.insert((of.len(), source));
        self.ages.insert(number, source);
        Number { source, number }
    }

    /// Removes a connection; none: it has lost its place.
    pub fn remove(&mut self, number: Number) -> Option<T> {
        let Number { source, number } = number;
        let of = self.of.get_mut(&source)?;
        let before = of.len();
        let (_, value) = of.remove(&number)?;
        self.ages.remove(&number);
        let after = of.len();
        self.count -= 1;
        self.sizes.remove(&(before, source));
        if after == 0 {
            self.of.remove(&source);
        } else {
            self.sizes.insert((after, source));
        }
        Some(value)
    }

    fn size(&self, source: IpAddr) -> usize {
        self.of.get(&source).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4;

    fn source(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    /// Admits a connection of this source if there is room; whether there was, and which connection has lost its place.
    fn admit(
        sources: &mut Sources<u32>,
        from: u32,
        value: u32,
        ms: u64,
    ) -> Result<Option<u32>, ()> {
        let now = Duration::from_millis(ms);
        let lost = match sources.make_room(source(from), now) {
            Room::None => return Err(()),
            Room::Free => None,
            Room::Instead(lost) => Some(lost),
        };
        sources.insert(source(from), now, value);
        assert!(sources.count <= MAX);
        Ok(lost)
    }

    #[test]
    fn a_source_that_has_all_places_gives_its_oldest_to_others_at_once() {
        let mut sources = Sources::new(MAX);
        for value in 0..4 {
            assert_eq!(admit(&mut sources, 1, value, 0), Ok(None));
        }
        assert_eq!(admit(&mut sources, 2, 10, 1), Ok(Some(0)));
        assert_eq!(admit(&mut sources, 2, 11, 1), Ok(Some(1)));
        // Both have two: neither takes a place of the other.
        assert_eq!(admit(&mut sources, 2, 12, 1), Err(()));
        assert_eq!(admit(&mut sources, 1, 13, 1), Err(()));
        assert_eq!(admit(&mut sources, 3, 14, 1), Ok(Some(10)));
    }

    #[test]
    fn a_source_replaces_its_own_silent_connections() {
        let mut sources = Sources::new(MAX);
        for value in 0..4 {
            assert_eq!(admit(&mut sources, 1, value, 100), Ok(None));
        }
        assert_eq!(admit(&mut sources, 1, 5, 1_099), Err(()));
        assert_eq!(admit(&mut sources, 1, 6, 1_100), Ok(Some(0)));
    }

    #[test]
    fn of_many_sources_with_one_connection_each_the_oldest_loses_its_place_after_a_second() {
        let mut sources = Sources::new(MAX);
        for from in 0..4 {
            assert_eq!(admit(&mut sources, from, from, 0), Ok(None));
        }
        assert_eq!(admit(&mut sources, 9, 9, 999), Err(()));
        assert_eq!(admit(&mut sources, 9, 9, 1_000), Ok(Some(0)));
        assert_eq!(admit(&mut sources, 10, 10, 1_001), Ok(Some(1)));
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_prefix_of_64_bits() {
        let of = |text: &str| super::source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_removed_connection_makes_room_and_is_not_removed_twice() {
        let mut sources = Sources::new(1);
        let number = sources.insert(source(1), Duration::ZERO, 1);
        assert_eq!(sources.make_room(source(1), Duration::ZERO), Room::None);
        assert_eq!(sources.remove(number), Some(1));
        assert_eq!(sources.remove(number), None);
        assert_eq!(sources.make_room(source(1), Duration::ZERO), Room::Free);
        assert!(sources.of.is_empty() && sources.sizes.is_empty() && sources.ages.is_empty());
    }
}
