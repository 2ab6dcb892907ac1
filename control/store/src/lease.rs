//! Leases with their TTLs and attached keys. Pure: time is an argument.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use crate::{Error, keyspace::Event};

/// A shorter TTL is raised to this, as in etcd with its default election timeout.
pub const TTL_MIN_S: i64 = 2;
/// A grant with a longer TTL fails.
pub const TTL_MAX_S: i64 = 9_000_000_000;
const _: () = assert!(TTL_MIN_S < TTL_MAX_S);

/// ID of a lease, chosen by the client or by the store; may be negative, never 0.
pub type LeaseId = i64;

/// A point in time, as the time since the store was created.
pub type Uptime = Duration;

#[derive(Debug)]
struct Lease {
    ttl_s: i64,
    expires: Uptime,
    keys: BTreeSet<Bytes>,
}

/// The state of a lease, as `LeaseTimeToLive` returns it.
#[derive(Debug, PartialEq, Eq)]
pub struct TimeToLive {
    /// Whole seconds until it expires; 0 once it is due.
    pub ttl_s: i64,
    /// The TTL in seconds that a grant or a keep-alive sets.
    pub granted_ttl_s: i64,
    /// Attached keys, in order; deleted when the lease expires.
    pub keys: Vec<Bytes>,
}

/// All leases, by ID and by expiry.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: HashMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Uptime, LeaseId)>,
}

impl Leases {
    /// Whether the lease exists.
    pub fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Grants a lease; returns its TTL in seconds.
    pub fn grant(&mut self, id: LeaseId, ttl_s: i64, now: Uptime) -> Result<i64, Error> {
        if ttl_s > TTL_MAX_S {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.contains(id) {
            return Err(Error::LeaseExists);
        }
        let ttl_s = ttl_s.max(TTL_MIN_S);
        let expires = now + seconds(ttl_s);
        self.by_id.insert(
            id,
            Lease {
                ttl_s,
                expires,
                keys: BTreeSet::new(),
            },
        );
        self.by_expiry.insert((expires, id));
        Ok(ttl_s)
    }

    /// Resets the expiry of a lease to its full TTL; returns the TTL in seconds.
    pub fn renew(&mut self, id: LeaseId, now: Uptime) -> Result<i64, Error> {
        let lease = self.by_id.get_mut(&id).ok_or(Error::LeaseNotFound)?;
        self.by_expiry.remove(&(lease.expires, id));
        lease.expires = now + seconds(lease.ttl_s);
        self.by_expiry.insert((lease.expires, id));
        Ok(lease.ttl_s)
    }

    /// Removes a lease; returns its attached keys in order, for the caller to delete.
    pub fn revoke(&mut self, id: LeaseId) -> Result<BTreeSet<Bytes>, Error> {
        let lease = self.by_id.remove(&id).ok_or(Error::LeaseNotFound)?;
        self.by_expiry.remove(&(lease.expires, id));
        Ok(lease.keys)
    }

    /// The TTL and the attached keys of a lease.
    pub fn time_to_live(&self, id: LeaseId, now: Uptime) -> Result<TimeToLive, Error> {
        let lease = self.by_id.get(&id).ok_or(Error::LeaseNotFound)?;
        let left = lease.expires.saturating_sub(now).as_secs();
        Ok(TimeToLive {
            ttl_s: i64::try_from(left).unwrap_or(i64::MAX),
            granted_ttl_s: lease.ttl_s,
            keys: lease.keys.iter().cloned().collect(),
        })
    }

    /// The IDs of all leases, ordered by expiry.
    pub fn by_expiry(&self) -> impl Iterator<Item = LeaseId> {
        self.by_expiry.iter().map(|&(_, id)| id)
    }

    /// The expiry of the lease that expires first.
    pub fn next_expiry(&self) -> Option<Uptime> {
        self.by_expiry.first().map(|&(expires, _)| expires)
    }

    /// The expired lease with the earliest expiry.
    pub fn expired(&self, now: Uptime) -> Option<LeaseId> {
        let &(expires, id) = self.by_expiry.first()?;
        (expires <= now).then_some(id)
    }

    /// Attaches the key of an event to the lease of its last put, and detaches it from the lease
    /// before.
    pub fn apply(&mut self, event: &Event) {
        let prev = event.prev.as_ref().map_or(0, |prev| prev.lease);
        let current = event.kv.lease;
        if prev != current
            && let Some(lease) = self.by_id.get_mut(&prev)
        {
            lease.keys.remove(&event.kv.key);
        }
        if let Some(lease) = self.by_id.get_mut(&current) {
            lease.keys.insert(event.kv.key.clone());
        }
    }
}

/// `ttl_s` lies between [`TTL_MIN_S`] and [`TTL_MAX_S`].
fn seconds(ttl_s: i64) -> Duration {
    Duration::from_secs(ttl_s.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Uptime = Duration::from_secs(100);

    #[test]
    fn a_ttl_below_the_minimum_is_raised_and_one_above_the_maximum_is_refused() {
        let mut leases = Leases::default();
        assert_eq!(leases.grant(1, -7, NOW), Ok(TTL_MIN_S));
        assert_eq!(
            leases.grant(2, TTL_MAX_S + 1, NOW),
            Err(Error::LeaseTtlTooLarge)
        );
        assert_eq!(leases.grant(2, TTL_MAX_S, NOW), Ok(TTL_MAX_S));
        assert_eq!(leases.grant(2, 5, NOW), Err(Error::LeaseExists));
    }

    #[test]
    fn a_lease_expires_exactly_at_its_ttl_and_a_renewal_resets_it() {
        let mut leases = Leases::default();
        leases.grant(1, 10, NOW).unwrap();
        let expiry = NOW + Duration::from_secs(10);
        assert_eq!(
            leases.expired(expiry.saturating_sub(Duration::from_nanos(1))),
            None
        );
        assert_eq!(leases.expired(expiry), Some(1));
        leases.renew(1, expiry).unwrap();
        assert_eq!(leases.expired(expiry), None);
        assert_eq!(leases.next_expiry(), Some(expiry + Duration::from_secs(10)));
    }

    #[test]
    fn leases_are_listed_by_expiry_and_a_revoked_lease_is_not_found() {
        let mut leases = Leases::default();
        for (id, ttl_s) in [(1, 30), (2, 10), (3, 20)] {
            leases.grant(id, ttl_s, NOW).unwrap();
        }
        assert_eq!(leases.by_expiry().collect::<Vec<_>>(), [2, 3, 1]);
        leases.revoke(3).unwrap();
        assert_eq!(leases.by_expiry().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(leases.revoke(3), Err(Error::LeaseNotFound));
        assert_eq!(leases.renew(3, NOW), Err(Error::LeaseNotFound));
        assert_eq!(leases.time_to_live(3, NOW), Err(Error::LeaseNotFound));
    }
}
