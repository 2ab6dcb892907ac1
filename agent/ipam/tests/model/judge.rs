//! The expected outcome of a request, from the ledger.

use std::net::Ipv6Addr;

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
            None if lanes(request.cohort).all(|lane| self.ledger.is_full(lane)) => {
                let of_cohort = request.cohort.map(|_| "cohort exhausted");
                Some(of_cohort.unwrap_or("exhausted"))
            }
            None => None,
        };
        of_suffix.or_else(|| match request.ipv4 {
            Ipv4Wish::None => None,
            Ipv4Wish::Any => self.is_full4().then_some("exhausted"),
            Ipv4Wish::Exactly(address) if !(2..=62).contains(&address.octets()[3]) => Some("range"),
            Ipv4Wish::Exactly(address) if self.ledger.addresses4.contains(&address) => {
                Some("taken")
            }
            Ipv4Wish::Exactly(address) => self
                .ledger
                .is_quarantined4(address)
                .then_some("quarantined"),
        })
    }

    fn refusal_of(&self, address: Ipv6Addr, cohort: Option<u32>) -> Option<&'static str> {
        let suffix = u32::try_from(address.to_bits() & u128::from(u32::MAX)).unwrap();
        let own = lane(suffix, false).is_some_and(|lane| cohort == Some(lane % (1 << 20)));
        if suffix < 16 || suffix >= 1024 && !own {
            Some("range")
        } else if self.ledger.suffixes.contains(&suffix) {
            Some("taken")
        } else {
            self.ledger.is_quarantined(suffix).then_some("quarantined")
        }
    }

    /// Checks that the address was free, of the right lane and of the first alias with room.
    pub(crate) fn check_choice(&self, request: &Request, lease: &Lease) {
        let suffix = lease.suffix.0;
        assert!(
            !self.ledger.is_quarantined(suffix),
            "{suffix:08x} is in quarantine"
        );
        if let Some(address) = request.address {
            assert_eq!(self.leases().address(lease.suffix), address);
        } else {
            let first = lanes(request.cohort).find(|lane| !self.ledger.is_full(*lane));
            assert_eq!(lane(suffix, self.ledger.narrow), first);
        }
        match request.ipv4 {
            Ipv4Wish::None => assert_eq!(lease.ipv4, None),
            Ipv4Wish::Any => assert!((2..=62).contains(&lease.ipv4.unwrap().octets()[3])),
            Ipv4Wish::Exactly(address) => assert_eq!(lease.ipv4, Some(address)),
        }
        assert!(
            !lease
                .ipv4
                .is_some_and(|address| self.ledger.is_quarantined4(address))
        );
        assert_eq!((lease.since, lease.wired), (self.now, request.wired));
    }
}

/// The lanes of a cohort and its aliases; without a cohort, the anonymous lane.
fn lanes(cohort: Option<u32>) -> impl Iterator<Item = u32> {
    let aliases = if cohort.is_some() { 4 } else { 1 };
    (0..aliases).map(move |alias| cohort.unwrap_or(0) + (alias << 20))
}
