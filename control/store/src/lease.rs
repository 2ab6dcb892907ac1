//! Leases: who holds which keys until when. Pure: time is an argument.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use crate::{Error, keyspace::Event};

/// Shorter leases are raised to this, as etcd does with its default election time-out.
pub const TTL_MIN_S: i64 = 2;
/// Longer leases are refused.
pub const TTL_MAX_S: i64 = 9_000_000_000;
const _: () = assert!(TTL_MIN_S < TTL_MAX_S);

/// Number of a lease, chosen by the client or the server; may be negative, never 0.
pub type LeaseId = i64;

/// A point in time: since the store was made.
pub type Since = Duration;

#[derive(Debug)]
struct Lease {
    ttl_s: i64,
    expires: Since,
    keys: BTreeSet<Bytes>,
}

/// What is known of a lease.
#[derive(Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Whole seconds until it ends; 0 once it is due.
    pub left_s: i64,
    /// Seconds that a grant or a renewal gives it.
    pub granted_s: i64,
    /// Keys that go with it, in order.
    pub keys: Vec<Bytes>,
}

/// All leases.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: HashMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Since, LeaseId)>,
}

impl Leases {
    /// Whether the lease exists.
    pub fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Makes a lease and returns the seconds that it got.
    pub fn grant(&mut self, id: LeaseId, ttl_s: i64, now: Since) -> Result<i64, Error> {
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

    /// Starts the lease's time anew and returns its seconds.
    pub fn renew(&mut self, id: LeaseId, now: Since) -> Result<i64, Error> {
        let lease = self.by_id.get_mut(&id).ok_or(Error::LeaseNotFound)?;
        self.by_expiry.remove(&(lease.expires, id));
        lease.expires = now + seconds(lease.ttl_s);
        self.by_expiry.insert((lease.expires, id));
        Ok(lease.ttl_s)
    }

    /// Ends a lease and returns its keys, in order: the caller deletes them.
    pub fn revoke(&mut self, id: LeaseId) -> Result<BTreeSet<Bytes>, Error> {
        let lease = self.by_id.remove(&id).ok_or(Error::LeaseNotFound)?;
        self.by_expiry.remove(&(lease.expires, id));
        Ok(lease.keys)
    }

    /// What is left of a lease.
    pub fn remaining(&self, id: LeaseId, now: Since) -> Result<Remaining, Error> {
        let lease = self.by_id.get(&id).ok_or(Error::LeaseNotFound)?;
        let left = lease.expires.saturating_sub(now).as_secs();
        Ok(Remaining {
            left_s: i64::try_from(left).unwrap_or(i64::MAX),
            granted_s: lease.ttl_s,
            keys: lease.keys.iter().cloned().collect(),
        })
    }

    /// All leases, the one that ends first in front.
    pub fn by_expiry(&self) -> impl Iterator<Item = LeaseId> {
        self.by_expiry.iter().map(|&(_, id)| id)
    }

    /// When the next lease ends.
    pub fn next_expiry(&self) -> Option<Since> {
        self.by_expiry.first().map(|&(expires, _)| expires)
    }

    /// A lease whose time is over.
    pub fn expired(&self, now: Since) -> Option<LeaseId> {
        let &(expires, id) = self.by_expiry.first()?;
        (expires <= now).then_some(id)
    }

    /// Follows a change: a key belongs to the lease of its last put.
    pub fn follow(&mut self, event: &Event) {
        let before = event.prev.as_ref().map_or(0, |prev| prev.lease);
        let after = event.kv.lease;
        if before != after
            && let Some(lease) = self.by_id.get_mut(&before)
        {
            lease.keys.remove(&event.kv.key);
        }
        if let Some(lease) = self.by_id.get_mut(&after) {
            lease.keys.insert(event.kv.key.clone());
        }
    }
}

/// `ttl_s` is between its two limits.
fn seconds(ttl_s: i64) -> Duration {
    Duration::from_secs(ttl_s.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Since = Duration::from_secs(100);

    #[test]
    fn a_short_lease_is_raised_and_a_very_long_one_refused() {
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
    fn a_lease_is_due_exactly_at_its_end_and_a_renewal_puts_that_off() {
        let mut leases = Leases::default();
        leases.grant(1, 10, NOW).unwrap();
        let end = NOW + Duration::from_secs(10);
        assert_eq!(
            leases.expired(end.saturating_sub(Duration::from_nanos(1))),
            None
        );
        assert_eq!(leases.expired(end), Some(1));
        leases.renew(1, end).unwrap();
        assert_eq!(leases.expired(end), None);
        assert_eq!(leases.next_expiry(), Some(end + Duration::from_secs(10)));
    }

    #[test]
    fn leases_are_listed_by_their_end_and_a_revoked_one_is_gone() {
        let mut leases = Leases::default();
        for (id, ttl_s) in [(1, 30), (2, 10), (3, 20)] {
            leases.grant(id, ttl_s, NOW).unwrap();
        }
        assert_eq!(leases.by_expiry().collect::<Vec<_>>(), [2, 3, 1]);
        leases.revoke(3).unwrap();
        assert_eq!(leases.by_expiry().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(leases.revoke(3), Err(Error::LeaseNotFound));
        assert_eq!(leases.renew(3, NOW), Err(Error::LeaseNotFound));
        assert_eq!(leases.remaining(3, NOW), Err(Error::LeaseNotFound));
    }
}
