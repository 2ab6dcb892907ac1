//! Reservation of an address for a pod that another plugin connects: a lease without a link.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use dormouse_agent_ipam::allocator::Request as LeaseRequest;
use dormouse_agent_ipam::{Ipv4Range, Lease, LeaseKey, State, Suffix};
use dormouse_agent_sys::netns;
use dormouse_cni::message::{Reserved, Reserved4, Wanted};
use dormouse_cni::pending::since_boot;

use super::attach::{self, PATIENCE};
use super::{Network, machine};
use crate::error::NetworkError;

/// Suffix of the host address that the other plugin uses as gateway; never a pod's.
const GATEWAY_SUFFIX: Suffix = Suffix(1);

impl Network {
    /// Reserves an address durably, until DEL, GC, or the end of the namespace.
    pub fn reserve(
        &self,
        key: &LeaseKey,
        netns: BorrowedFd<'_>,
        wanted: &Wanted,
    ) -> Result<Reserved, NetworkError> {
        let id = attach::foreign(netns)?;
        let (address, ipv4) = self.addresses(wanted);
        if self.leases.lease(key).is_some() {
            self.consume_pending()?;
        }
        let _busy = self
            .in_work
            .enter(key, PATIENCE)
            .ok_or_else(|| NetworkError::Busy(key.clone()))?;
        self.free_dead(key)?;
        let request = LeaseRequest {
            address,
            ipv4,
            cohort: wanted.cohort,
            wired: false,
            ..LeaseRequest::new(key.clone(), id)
        };
        let lease = self.leases.reserve(&request, since_boot())?;
        let confirmed = self.leases.confirm(lease.suffix);
        confirmed.inspect_err(|_| self.undo(&lease))?;
        let prefix = self.config.prefix;
        Ok(Reserved {
            address: self.address(lease.suffix),
            prefix_length: prefix.length(),
            gateway: prefix.address(GATEWAY_SUFFIX),
            ipv4: self.config.range4.zip(lease.ipv4).map(reserved4),
        })
    }

    /// Frees an earlier reservation of the same key whose namespace was deleted without DEL.
    fn free_dead(&self, key: &LeaseKey) -> Result<(), NetworkError> {
        let earlier = self.leases.lease(key);
        match earlier {
            Some(lease) if alive_reservations([&*lease].into_iter())?.is_empty() => {
                self.reclaim(&lease)
            }
            _ => Ok(()),
        }
    }
}

fn reserved4((range, address): (Ipv4Range, Ipv4Addr)) -> Reserved4 {
    Reserved4 {
        address,
        prefix_length: range.length(),
        gateway: range.gateway(),
    }
}

/// Of the leases that are reserved for other plugins' pods, those whose namespaces exist.
pub(super) fn alive_reservations<'a>(
    leases: impl Iterator<Item = &'a Lease>,
) -> Result<HashSet<Suffix>, NetworkError> {
    let reservations: Vec<_> = leases.filter(|lease| is_reservation(lease)).collect();
    if reservations.is_empty() {
        return Ok(HashSet::new());
    }
    let existing = netns::existing().map_err(machine("list the existing namespaces"))?;
    let alive = reservations
        .into_iter()
        .filter(|lease| existing.contains(&lease.netns.ino));
    Ok(alive.map(|lease| lease.suffix).collect())
}

/// Whether the lease is for another plugin's pod, which has no link that shows whether it is alive.
pub(super) fn is_reservation(lease: &Lease) -> bool {
    lease.state == State::Live && !lease.wired
}
