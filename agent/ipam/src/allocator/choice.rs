//! Choosing an address: the next free one or a requested one, claimed until its record is applied or the claim is
//! cancelled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use super::{AllocateError, Allocator, Ipv4Wish, REQUEST_QUARANTINE_MAX, Request, Usage};
use crate::lane::{COHORTS, Lane};
use crate::lease::{KEY_LEN_MAX, Lease, LeaseKey, State};
use crate::pool::{Pool, Use};
use crate::prefix::Suffix;

impl Allocator {
    /// Fails if no address of a configured family is free for a pod without a cohort at `now` (since boot).
    pub fn check_room(&mut self, now: Duration) -> Result<(), AllocateError> {
        self.expire(now);
        self.draw(None)?;
        if self.range4.is_some() {
            self.draw4()?;
        }
        Ok(())
    }

    /// Number of addresses by state at `now` (since boot).
    pub fn usage(&mut self, now: Duration) -> Usage {
        self.expire(now);
        let count = |number| u64::try_from(number).unwrap_or(u64::MAX);
        Usage {
            held: count(self.leases.len()),
            quarantined: count(self.suffixes.quarantined_count()),
            free: self.suffixes.free(self.prefix.anonymous()).into(),
        }
    }

    /// Chooses addresses and excludes them from other requests. The caller then applies the lease's record or calls
    /// [`cancel_claim`](Self::cancel_claim).
    pub fn claim(&mut self, request: &Request, now: Duration) -> Result<Arc<Lease>, AllocateError> {
        self.expire(now);
        self.check_key(&request.key)?;
        let suffix = match request.address {
            Some(address) => self.requested(address, request, now)?,
            None => self.draw(request.cohort)?,
        };
        let ipv4 = match request.ipv4 {
            Ipv4Wish::None => None,
            Ipv4Wish::Any => Some(self.draw4()?),
            Ipv4Wish::Exactly(address) => Some(self.requested4(address, &request.key, now)?),
        };
        let lease = Lease {
            key: request.key.clone(),
            suffix,
            state: State::Reserved,
            netns: request.netns,
            since: now,
            ipv4,
            wired: request.wired,
        };
        self.hold(&lease);
        Ok(Arc::new(lease))
    }

    /// Claims addresses that the kernel shows in use, even during their quarantine.
    pub fn claim_used(&mut self, lease: &Lease) -> Result<(), AllocateError> {
        self.check_key(&lease.key)?;
        if self.suffixes.state(lease.suffix.0) == Use::Held {
            return Err(self.taken(self.prefix.address(lease.suffix).into()));
        }
        if let (Some(address), Some(pool)) = (lease.ipv4, &self.addresses4)
            && pool.state(address.to_bits()) == Use::Held
        {
            return Err(self.taken(address.into()));
        }
        self.hold(lease);
        Ok(())
    }

    /// Cancels a claim whose record was not written; its addresses need no quarantine.
    pub fn cancel_claim(&mut self, lease: &Lease) {
        self.keys.remove(&lease.key);
        self.suffixes.release(lease.suffix.0);
        if let (Some(address), Some(pool)) = (lease.ipv4, &mut self.addresses4) {
            pool.release(address.to_bits());
        }
    }

    pub(super) fn hold(&mut self, lease: &Lease) {
        self.keys.insert(lease.key.clone(), lease.suffix);
        self.suffixes.hold(lease.suffix.0);
        if let (Some(address), Some(pool)) = (lease.ipv4, &mut self.addresses4) {
            pool.hold(address.to_bits());
        }
    }

    /// Quarantines an address without a lease. A claimed one stays claimed: the record is of its earlier lease.
    pub(super) fn quarantine_unheld(&mut self, suffix: Suffix, at: Duration) {
        if self.suffixes.state(suffix.0) == Use::Free {
            self.suffixes.quarantine(suffix.0, at);
        }
    }

    fn check_key(&self, key: &LeaseKey) -> Result<(), AllocateError> {
        let length = key.length();
        if length > KEY_LEN_MAX {
            return Err(AllocateError::KeyTooLong { length });
        }
        match self.keys.get(key) {
            None => Ok(()),
            Some(suffix) => Err(AllocateError::Held {
                key: key.clone(),
                address: self.prefix.address(*suffix),
            }),
        }
    }

    fn draw(&self, cohort: Option<u32>) -> Result<Suffix, AllocateError> {
        let Some(cohort) = cohort else {
            let drawn = draw_from(&self.suffixes, &[self.prefix.anonymous()]);
            return drawn.map(Suffix).ok_or(AllocateError::Exhausted {
                prefix: self.prefix,
                held: self.leases.len(),
            });
        };
        self.check_cohort(cohort)?;
        let lanes: Vec<Lane> = self.prefix.cohort_lanes(cohort).collect();
        draw_from(&self.suffixes, &lanes)
            .map(Suffix)
            .ok_or(AllocateError::CohortExhausted { cohort })
    }

    fn check_cohort(&self, cohort: u32) -> Result<(), AllocateError> {
        if !self.prefix.has_cohorts() {
            let prefix = self.prefix;
            return Err(AllocateError::NoCohorts { prefix });
        }
        if !COHORTS.contains(&cohort) {
            return Err(AllocateError::ReservedCohort(cohort));
        }
        Ok(())
    }

    fn requested(
        &self,
        address: Ipv6Addr,
        request: &Request,
        now: Duration,
    ) -> Result<Suffix, AllocateError> {
        let suffix = self.prefix.suffix(address);
        let suffix = suffix.ok_or_else(|| self.out_of_range(address))?;
        let is_requestable = self.prefix.requestable().contains(&suffix.0);
        match request.cohort {
            Some(cohort) => {
                self.check_cohort(cohort)?;
                let is_of_cohort =
                    self.prefix.lane_of(suffix).is_some() && suffix.given_cohort() == cohort;
                if !is_requestable && !is_of_cohort {
                    return Err(AllocateError::OtherCohort {
                        address,
                        address_cohort: suffix.given_cohort(),
                        pod_cohort: cohort,
                    });
                }
            }
            None if is_requestable => {}
            None => return Err(self.out_of_range(address)),
        }
        let own = self.ended.had(&request.key, suffix);
        self.check_use(self.suffixes.state(suffix.0), own, address.into(), now)?;
        Ok(suffix)
    }

    fn draw4(&self) -> Result<Ipv4Addr, AllocateError> {
        let (Some(range), Some(pool)) = (self.range4, &self.addresses4) else {
            return Err(AllocateError::NoIpv4Range { wanted: None });
        };
        draw_from(pool, &[range.lane()])
            .map(Ipv4Addr::from_bits)
            .ok_or(AllocateError::Ipv4Exhausted { range })
    }

    fn requested4(
        &self,
        address: Ipv4Addr,
        key: &LeaseKey,
        now: Duration,
    ) -> Result<Ipv4Addr, AllocateError> {
        let (Some(range), Some(pool)) = (self.range4, &self.addresses4) else {
            return Err(AllocateError::NoIpv4Range {
                wanted: Some(address),
            });
        };
        if !range.contains(address) {
            return Err(AllocateError::OutOfIpv4Range { address, range });
        }
        let own = self.ended.had4(key, address);
        self.check_use(pool.state(address.to_bits()), own, address.into(), now)?;
        Ok(address)
    }

    /// Whether a requested address may be leased; `own`: the attachment had it last, and takes it back.
    fn check_use(
        &self,
        state: Use,
        own: bool,
        address: IpAddr,
        now: Duration,
    ) -> Result<(), AllocateError> {
        match state {
            Use::Free => Ok(()),
            Use::Held => Err(self.taken(address)),
            Use::QuarantinedAt(_) if own => Ok(()),
            Use::QuarantinedAt(at) => {
                let left = (at + REQUEST_QUARANTINE_MAX).saturating_sub(now);
                if left.is_zero() {
                    return Ok(());
                }
                let left_ms = left.as_millis();
                Err(AllocateError::Quarantined { address, left_ms })
            }
        }
    }

    fn out_of_range(&self, address: Ipv6Addr) -> AllocateError {
        let range = self.prefix.requestable();
        AllocateError::OutOfRange {
            address,
            prefix: self.prefix,
            first: self.prefix.address(Suffix(*range.start())),
            last: self.prefix.address(Suffix(*range.end())),
        }
    }

    /// The error with the holder's name, found by a scan of all leases: such a request is a rare mistake.
    fn taken(&self, address: IpAddr) -> AllocateError {
        let holder = match address {
            IpAddr::V6(address) => {
                let suffix = self.prefix.suffix(address);
                let mut keys = self.keys.iter();
                keys.find(|(_, held)| Some(**held) == suffix)
                    .map(|(key, _)| key.clone())
            }
            IpAddr::V4(address) => {
                let mut leases = self.leases.values();
                leases
                    .find(|lease| lease.ipv4 == Some(address))
                    .map(|lease| lease.key.clone())
            }
        };
        AllocateError::Taken { address, holder }
    }
}

/// The next free number of the first lane that has one; if none has, the one that is in quarantine for the longest time.
fn draw_from(pool: &Pool, lanes: &[Lane]) -> Option<u32> {
    let free = lanes.iter().find_map(|lane| pool.draw(*lane));
    free.or_else(|| pool.draw_quarantined(lanes))
}
