//! Leases with their TTLs and attached keys. Pure: time is an argument.
//!
//! Ordered maps hold them: none has to copy all its entries to grow, and none has an allocation for
//! each lease.

mod list;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    Error,
    keyspace::{Event, KeyRange, Keyspace, Revision},
};
pub(crate) use list::LeaseList;

/// A shorter TTL is raised to this, as in etcd with its default election timeout.
pub const TTL_MIN_S: i64 = 2;
/// A grant with a longer TTL fails.
pub const TTL_MAX_S: i64 = 9_000_000_000;
const _: () = assert!(TTL_MIN_S < TTL_MAX_S);
// Expiries are nanoseconds: the largest TTL and a century of uptime fit.
const _: () = assert!((TTL_MAX_S as u64 + 100 * 366 * 86_400) < u64::MAX / 1_000_000_000);

/// Renewed leases that one call of [`Leases::expired`] moves; bounds the time for which the caller
/// holds the lock.
const RENEWED_MAX: usize = 64;

/// Bytes of a lease in both ordered maps, whose nodes are about two thirds full.
const LEASE_BYTES: u64 = 96;
/// Bytes of an attached key besides the key itself: its entry, and the allocator's overhead.
const ATTACHMENT_BYTES: u64 = 56;

/// ID of a lease, chosen by the client or by the store; may be negative, never 0.
pub type LeaseId = i64;

/// A point in time, as the time since the store was created.
pub type Uptime = Duration;

/// Nanoseconds since the store was created.
type Nanos = u64;

/// A key that is attached to a lease.
type Attachment = (LeaseId, Box<[u8]>);

#[derive(Debug)]
struct Lease {
    ttl_s: i64,
    expires: Nanos,
    /// The expiry by which it is ordered. A renewal does not change it: a lease is moved to its new
    /// place once, when the old expiry is due.
    queued: Nanos,
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

/// The answer to the question for an expired lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// This lease has expired, the earliest of all.
    Lease(LeaseId),
    /// Unknown: many leases were renewed. The caller asks again.
    Unknown,
    /// No lease has expired.
    Nothing,
}

/// All leases and their attached keys.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: BTreeMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Nanos, LeaseId)>,
    keys: BTreeSet<Attachment>,
    key_bytes: u64,
}

impl Leases {
    /// Whether there is no lease.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Whether the lease exists.
    pub fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Estimated bytes of all leases and attached keys.
    pub fn bytes(&self) -> u64 {
        let (leases, keys) = (self.by_id.len() as u64, self.keys.len() as u64);
        leases * LEASE_BYTES + keys * ATTACHMENT_BYTES + self.key_bytes
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
        let expires = expiry(ttl_s, now);
        let lease = Lease {
            ttl_s,
            expires,
            queued: expires,
        };
        self.by_id.insert(id, lease);
        self.by_expiry.insert((expires, id));
        Ok(ttl_s)
    }

    /// The leases behind an ID in the order of IDs; all without one.
    fn behind(&self, id: Option<LeaseId>) -> impl Iterator<Item = (&LeaseId, &Lease)> {
        let start = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((start, Bound::Unbounded))
    }

    /// Attaches a restored key to the lease of its last put.
    pub(crate) fn restore_key(&mut self, key: &[u8], lease: LeaseId) {
        self.moved(key, 0, lease);
    }

    /// Resets the expiry of a lease to its full TTL; returns the TTL in seconds.
    pub fn renew(&mut self, id: LeaseId, now: Uptime) -> Result<i64, Error> {
        let lease = self.by_id.get_mut(&id).ok_or(Error::LeaseNotFound)?;
        lease.expires = expiry(lease.ttl_s, now);
        Ok(lease.ttl_s)
    }

    /// Removes a lease; returns its attached keys in order, for the caller to delete.
    pub fn revoke(&mut self, id: LeaseId) -> Result<Vec<Bytes>, Error> {
        let lease = self.by_id.remove(&id).ok_or(Error::LeaseNotFound)?;
        self.by_expiry.remove(&(lease.queued, id));
        let attached = self.keys.extract_if(attached(id), |_| true);
        let keys: Vec<Bytes> = attached.map(|(_, key)| key.into()).collect();
        self.key_bytes -= keys.iter().map(|key| key.len() as u64).sum::<u64>();
        Ok(keys)
    }

    /// The TTL and the attached keys of a lease.
    pub fn time_to_live(&self, id: LeaseId, now: Uptime) -> Result<TimeToLive, Error> {
        let lease = self.by_id.get(&id).ok_or(Error::LeaseNotFound)?;
        let left = Duration::from_nanos(lease.expires).saturating_sub(now);
        Ok(TimeToLive {
            ttl_s: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            granted_ttl_s: lease.ttl_s,
            keys: self.keys(id),
        })
    }

    /// The attached keys of a lease, in order.
    pub(crate) fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        let keys = self.keys.range(attached(id));
        keys.map(|(_, key)| Bytes::copy_from_slice(key)).collect()
    }

    /// The time of the next expiry, or an earlier one at which [`expired`](Self::expired) finds that
    /// a lease was renewed.
    pub fn next_expiry(&self) -> Option<Uptime> {
        self.by_expiry
            .first()
            .map(|&(queued, _)| Duration::from_nanos(queued))
    }

    /// The expired lease with the earliest expiry.
    pub fn expired(&mut self, now: Uptime) -> Expired {
        let now = nanos(now);
        for _ in 0..RENEWED_MAX {
            match self.by_expiry.first() {
                Some(&(queued, id)) if queued <= now => {
                    if !self.requeue(queued, id) {
                        return Expired::Lease(id);
                    }
                }
                _ => return Expired::Nothing,
            }
        }
        Expired::Unknown
    }

    /// Moves a renewed lease to its new place; returns whether it was renewed.
    fn requeue(&mut self, queued: Nanos, id: LeaseId) -> bool {
        let Some(lease) = self.by_id.get_mut(&id) else {
            return self.by_expiry.remove(&(queued, id));
        };
        if lease.expires == queued {
            return false;
        }
        lease.queued = lease.expires;
        self.by_expiry.remove(&(queued, id));
        self.by_expiry.insert((lease.expires, id))
    }

    /// Applies the events above a revision.
    pub(crate) fn apply_above(&mut self, revision: Revision, keyspace: &Keyspace) {
        if self.is_empty() {
            return;
        }
        for event in keyspace.events_above(revision) {
            self.apply(&event);
        }
    }

    /// Applies the deletion of all keys of a range, the only events above a revision.
    pub(crate) fn apply_deletion(
        &mut self,
        range: &KeyRange,
        (revision, keyspace): (Revision, &Keyspace),
    ) {
        if keyspace.count_above(revision) < self.keys.len() as u64 {
            self.apply_above(revision, keyspace);
            return;
        }
        let deleted = |(_, key): &Attachment| range.contains(key);
        let detached = self.keys.extract_if(.., deleted);
        self.key_bytes -= detached.map(|(_, key)| key.len() as u64).sum::<u64>();
    }

    /// Attaches the key of an event to the lease of its last put, and detaches it from the lease
    /// before.
    fn apply(&mut self, event: &Event<'_>) {
        let prev = event.superseded().map_or(0, |prev| prev.fields().lease);
        self.moved(event.key(), prev, event.fields().lease);
    }

    /// Detaches a key from a lease and attaches it to another; 0 is no lease.
    fn moved(&mut self, key: &[u8], from: LeaseId, to: LeaseId) {
        if from == to {
            return;
        }
        let bytes = key.len() as u64;
        if from != 0 && self.keys.remove(&(from, key.into())) {
            self.key_bytes -= bytes;
        }
        if self.contains(to) && self.keys.insert((to, key.into())) {
            self.key_bytes += bytes;
        }
    }
}

/// The entries of one lease in [`Leases::keys`]. The empty key is below all keys.
fn attached(id: LeaseId) -> (Bound<Attachment>, Bound<Attachment>) {
    let end = match id.checked_add(1) {
        Some(next) => Bound::Excluded((next, Box::default())),
        None => Bound::Unbounded,
    };
    (Bound::Included((id, Box::default())), end)
}

fn nanos(uptime: Uptime) -> Nanos {
    Nanos::try_from(uptime.as_nanos()).unwrap_or(Nanos::MAX)
}

/// `ttl_s` lies between [`TTL_MIN_S`] and [`TTL_MAX_S`].
fn expiry(ttl_s: i64, now: Uptime) -> Nanos {
    nanos(now + Duration::from_secs(ttl_s.unsigned_abs()))
}
