//! Rate limit of the neighbour entries that pods' packets create on the uplink. A packet to an address of the link that no host has
//! occupies an entry of the node's neighbour tables for some seconds, and a table has 1,024 entries by default.

use crate::budget::Budget;

/// New neighbours of one pod: 16 a second. An entry without an answer stays for three seconds (RFC 4861 10), so at most 80 are a pod's.
pub const OF_POD: Budget = Budget {
    interval_ns: 1_000_000_000 / 16,
    burst: 32,
};
/// New neighbours of all pods: 64 a second, so at most 320 entries.
pub const OF_NODE: Budget = Budget {
    interval_ns: 1_000_000_000 / 64,
    burst: 128,
};
/// The time for which a destination that needs no new neighbour is not looked up again, in the kernel's ticks, 100 to 1,000 of which
/// are a second. Longer than that a neighbour keeps its entry.
pub const KNOWN_TICKS: u64 = 250;
/// Destinations that each processor remembers; a power of two.
pub const KNOWN_MAX: u32 = 256;

/// A destination that needed no new neighbour when it was looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Known {
    /// Its address, as two words; IPv4 mapped.
    pub address: [u64; 2],
    /// It is looked up again from then on, in the kernel's ticks since it started.
    pub until_ticks: u64,
}

/// An address as two words.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower word")]
pub const fn words(address: &[u8; 16]) -> [u64; 2] {
    let bits = u128::from_le_bytes(*address);
    [bits as u64, (bits >> 64) as u64]
}

/// The place of a destination among those that are remembered.
#[inline(always)]
pub const fn place(address: &[u64; 2]) -> u32 {
    let mixed = (address[0].rotate_left(32) ^ address[1]).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u32 & (KNOWN_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(full_at_ns: &mut u64, now_ns: u64) -> usize {
        let mut take = || {
            OF_POD
                .take(*full_at_ns, now_ns)
                .map(|full| *full_at_ns = full)
        };
        (0..1_000).map_while(|_| take()).count()
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let (mut full_at_ns, second_ns) = (0, 1_000_000_000);
        assert_eq!(taken(&mut full_at_ns, second_ns), 32);
        assert_eq!(taken(&mut full_at_ns, second_ns), 0);
        assert_eq!(taken(&mut full_at_ns, 2 * second_ns), 16);
        assert_eq!(taken(&mut full_at_ns, 60 * second_ns), 32);
    }

    #[test]
    fn addresses_of_one_prefix_have_different_places() {
        let address = |host: u32| {
            let prefix = 0x2001_0db8_00d0_u128 << 80;
            words(&(prefix | u128::from(host)).to_be_bytes())
        };
        let places: std::collections::BTreeSet<_> =
            (0..KNOWN_MAX).map(|host| place(&address(host))).collect();
        assert!(places.len() > KNOWN_MAX as usize / 2, "{}", places.len());
    }
}
