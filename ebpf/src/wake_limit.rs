//! The limit of wakes by source: a packet that would wake an app, or ask control for an unknown VIP, takes a token of its source.
//!
//! So a scan of the VIP range by one source wakes a bounded number of apps. Packets to an app that the node follows and that is awake,
//! or whose wake is pending, take no token.

use crate::budget::Budget;
use crate::config::Net;
use crate::packet::{is_v4, v4_of};

/// Sources that have a bucket, an entry of the map `wake_budget` each; the least recently used is evicted when it is full, and has a
/// full bucket again.
pub const WAKE_SOURCES_MAX: u32 = 1 << 14;
/// Prefixes of sources without a limit (`--trusted-proxy`).
pub const TRUSTED_MAX: usize = 8;
/// Tokens of a full bucket at most: one for each VIP of the largest range.
pub const WAKE_BURST_MAX: u32 = 1 << 20;
/// Nanoseconds of a minute.
const MINUTE_NS: u64 = 60_000_000_000;

/// The limit, the only row of the map `wake_limit`. Written by the agent when it starts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeLimit {
    /// The time for one token, in nanoseconds; 0: there is no limit.
    pub interval_ns: u64,
    /// Tokens of a full bucket.
    pub burst: u64,
    /// Sources without a limit.
    pub trusted: [Net; TRUSTED_MAX],
}

impl WakeLimit {
    /// A limit of so many wakes a minute, and so many at once; 0 a minute: no limit.
    pub fn new(per_minute: u32, burst: u32) -> Self {
        Self {
            interval_ns: MINUTE_NS.checked_div(per_minute.into()).unwrap_or(0),
            burst: burst.min(WAKE_BURST_MAX).into(),
            trusted: [Net::default(); TRUSTED_MAX],
        }
    }

    /// The bucket of a source; none: there is no limit.
    #[inline(always)]
    pub const fn budget(&self) -> Option<Budget> {
        if self.interval_ns == 0 {
            return None;
        }
        Some(Budget {
            interval_ns: self.interval_ns,
            burst: self.burst,
        })
    }

    /// Whether the source has no limit.
    #[inline(always)]
    pub fn trusts(&self, source: &[u8; 16]) -> bool {
        let mut place = 0;
        while place < TRUSTED_MAX {
            if self.trusted[place].contains(source) {
                return true;
            }
            place += 1;
        }
        false
    }
}

/// The owner of a bucket, a key of the map `wake_budget`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeSource {
    /// One of the constants `OF_*`.
    pub kind: u64,
    /// The prefix, the address, the link or the network namespace.
    pub id: u64,
}

/// Outside: a /64.
const OF_PREFIX: u64 = 1;
/// Outside: an IPv4 address.
const OF_ADDRESS4: u64 = 2;
/// A pod's packets: the index of the host's end of its link.
const OF_LINK: u64 = 3;
/// A socket's calls: the cookie of its network namespace.
const OF_NETNS: u64 = 4;

impl WakeSource {
    /// A host outside: its /64, or its IPv4 address.
    #[inline(always)]
    pub fn outside(address: &[u8; 16]) -> Self {
        if is_v4(address) {
            return Self {
                kind: OF_ADDRESS4,
                id: u32::from_be_bytes(v4_of(address)).into(),
            };
        }
        Self {
            kind: OF_PREFIX,
            id: (u128::from_be_bytes(*address) >> 64) as u64,
        }
    }

    /// A pod, by its link.
    #[inline(always)]
    pub const fn pod(link: u32) -> Self {
        Self {
            kind: OF_LINK,
            id: link as u64,
        }
    }

    /// The node's own processes, or a pod without a link that a program sees, by the network namespace's cookie.
    #[inline(always)]
    pub const fn processes(netns: u64) -> Self {
        Self {
            kind: OF_NETNS,
            id: netns,
        }
    }
}

#[cfg(not(target_arch = "bpf"))]
// SAFETY: `repr(C)`, `Copy`, no references, no padding, valid for every bit pattern.
unsafe impl aya::Pod for WakeLimit {}
#[cfg(not(target_arch = "bpf"))]
// SAFETY: as above.
unsafe impl aya::Pod for WakeSource {}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn address(text: &str) -> [u8; 16] {
        match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    fn source(text: &str) -> WakeSource {
        WakeSource::outside(&address(text))
    }

    #[test]
    fn hosts_of_a_64_share_a_bucket_and_each_ipv4_address_has_its_own() {
        assert_eq!(source("2001:db8:0:7::1"), source("2001:db8:0:7:ffff::2"));
        assert_ne!(source("2001:db8:0:7::1"), source("2001:db8:0:8::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_ne!(source("0.0.0.7"), source("::7"), "no prefix of zeros");
        assert_ne!(WakeSource::pod(7), WakeSource::processes(7));
    }

    #[test]
    fn two_hundred_at_once_and_sixty_a_minute_are_the_numbers_of_the_bucket() {
        let budget = WakeLimit::new(60, 200).budget().unwrap();
        let mut full_at_ns = 0;
        let mut taken = |now_ns: u64| {
            let mut take = || {
                let full = budget.take(full_at_ns, now_ns)?;
                full_at_ns = full;
                Some(())
            };
            (0..10_000).map_while(|_| take()).count()
        };
        assert_eq!(taken(SECOND_NS), 200);
        assert_eq!(taken(SECOND_NS), 0);
        assert_eq!(taken(61 * SECOND_NS), 60);
        assert_eq!(taken(10_000 * SECOND_NS), 200, "never more than the burst");
    }

    #[test]
    fn without_a_rate_there_is_no_limit() {
        assert_eq!(WakeLimit::new(0, 200).budget(), None);
        assert_eq!(WakeLimit::default().budget(), None);
    }

    #[test]
    fn the_largest_burst_at_the_lowest_rate_does_not_overflow() {
        let budget = WakeLimit::new(1, u32::MAX).budget().unwrap();
        let years_ns = 100 * 365 * 86_400 * SECOND_NS;
        assert!(budget.take(years_ns, years_ns).is_some());
    }

    #[test]
    fn trusted_are_the_addresses_of_its_prefixes_only() {
        let mut limit = WakeLimit::new(60, 200);
        assert!(!limit.trusts(&address("::")), "no prefix");
        limit.trusted[TRUSTED_MAX - 1] = Net {
            prefix: address("192.0.2.0"),
            mask: (u128::MAX << 8).to_be_bytes(),
        };
        assert!(limit.trusts(&address("192.0.2.9")));
        assert!(!limit.trusts(&address("192.0.3.9")));
        assert!(!limit.trusts(&address("2001:db8::1")));
    }
}
