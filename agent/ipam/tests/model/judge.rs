//! The expected outcome of a request, from the ledger.

use std::net::Ipv6Addr;
use std::time::Duration;

use dormouse_agent_ipam::allocator::REQUEST_QUARANTINE_MAX;
use dormouse_agent_ipam::{Ipv4Wish, Lease, Request};

use super::World;
use super::ledger::lane;

impl World {
    /// The expected reason of refusal; `None` if the request must succeed.
    pub(crate) fn refusal(&self, container: u32, request: &Request) -> Option<&'static str> {
        if self.ledger.held.contains_key(&container) {
            return Some("held");
        }
        let of_suffix = match request.address {
            Some(address) => self.refusal_of(address, request.cohort),
            None if self.is_exhausted(request.cohort) => {
                let of_cohort = request.cohort.map(|_| "cohort exhausted");
                Some(of_cohort.unwrap_or("exhausted"))
            }
            None => None,
        };
        of_suffix.or_else(|| match request.ipv4 {
            Ipv4Wish::None => None,
            Ipv4Wish::Any => self.is_exhausted4().then_some("exhausted"),
            Ipv4Wish::Exactly(address) if !(2..=62).contains(&address.octets()[3]) => Some("range"),
            Ipv4Wish::Exactly(address) if self.ledger.addresses4.contains(&address) => {
                Some("taken")
            }
            Ipv4Wish::Exactly(address) => self.recent(self.ledger.since4(address)),
        })
    }

    /// The reason of refusal of a requested address that was released at `since`.
    fn recent(&self, since: Option<Duration>) -> Option<&'static str> {
        let recent = since.is_some_and(|at| self.now < at + REQUEST_QUARANTINE_MAX);
        recent.then_some("quarantined")
    }

    /// Whether all numbers are leased.
    pub(crate) fn is_exhausted(&self, cohort: Option<u32>) -> bool {
        let lanes: Vec<u32> = lanes(cohort).collect();
        lanes.iter().all(|lane| self.ledger.is_full(*lane)) && self.ledger.oldest(&lanes).is_none()
    }

    /// Whether all IPv4 addresses are leased.
    pub(crate) fn is_exhausted4(&self) -> bool {
        self.is_full4() && self.ledger.oldest4().is_none()
    }

    fn refusal_of(&self, address: Ipv6Addr, cohort: Option<u32>) -> Option<&'static str> {
        let suffix = u32::try_from(address.to_bits() & u128::from(u32::MAX)).unwrap();
        let own = lane(suffix, false).is_some_and(|lane| cohort == Some(lane % (1 << 20)));
        if suffix < 16 || suffix >= 1024 && !own {
            Some("range")
        } else if self.ledger.suffixes.contains(&suffix) {
            Some("taken")
        } else {
            self.recent(self.ledger.since(suffix))
        }
    }

    /// Checks that the address was free, of the right lane and of the first alias with room; or that none was free, and it
    /// is the one that was released first.
    pub(crate) fn check_choice(&self, request: &Request, lease: &Lease) {
        let suffix = lease.suffix.0;
        let lanes: Vec<u32> = lanes(request.cohort).collect();
        if let Some(address) = request.address {
            assert_eq!(self.leases().address(lease.suffix), address);
        } else if let Some(first) = lanes.iter().find(|lane| !self.ledger.is_full(**lane)) {
            assert_eq!(lane(suffix, self.ledger.narrow), Some(*first));
            let quarantined = self.ledger.is_quarantined(suffix);
            assert!(!quarantined, "{suffix:08x} is in quarantine");
        } else {
            assert_eq!(self.ledger.oldest(&lanes), Some(suffix));
        }
        match request.ipv4 {
            Ipv4Wish::None => assert_eq!(lease.ipv4, None),
            Ipv4Wish::Any if self.is_full4() => assert_eq!(lease.ipv4, self.ledger.oldest4()),
            Ipv4Wish::Any => {
                let address = lease.ipv4.unwrap();
                assert!((2..=62).contains(&address.octets()[3]));
                assert_eq!(self.ledger.since4(address), None, "{address}");
            }
            Ipv4Wish::Exactly(address) => assert_eq!(lease.ipv4, Some(address)),
        }
        assert_eq!((lease.since, lease.wired), (self.now, request.wired));
    }
}

/// The lanes of a cohort and its aliases; without a cohort, the anonymous lane.
fn lanes(cohort: Option<u32>) -> impl Iterator<Item = u32> {
    let aliases = if cohort.is_some() { 4 } else { 1 };
    (0..aliases).map(move |alias| cohort.unwrap_or(0) + (alias << 20))
}
