//! A list of all leases, made in slices, so that a million of them delay no write.

use super::{LeaseId, Leases};

/// Leases that one slice lists; bounds the time for which the caller holds the lock.
const SLICE_LEASES: usize = 1_024;

/// A lease in the list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    id: LeaseId,
    ttl_s: i64,
    /// Nanoseconds since the store was created.
    expires: u64,
}

/// A list in progress, in the order of IDs. A lease that is granted or revoked between two slices
/// may be in it or not.
#[derive(Debug, Default)]
pub(crate) struct LeaseList {
    leases: Vec<Listed>,
}

impl LeaseList {
    /// Lists some leases; returns whether the list is complete.
    pub(crate) fn slice(&mut self, leases: &Leases) -> bool {
        let before = self.leases.len();
        let last = self.leases.last().map(|last| last.id);
        let behind = leases.behind(last).take(SLICE_LEASES);
        self.leases.extend(behind.map(|(&id, lease)| Listed {
            id,
            ttl_s: lease.ttl_s,
            expires: lease.expires,
        }));
        self.leases.len() - before < SLICE_LEASES
    }

    /// The IDs and the granted TTLs in seconds, in the order of IDs.
    pub(crate) fn granted(&self) -> impl Iterator<Item = (LeaseId, i64)> {
        self.leases.iter().map(|lease| (lease.id, lease.ttl_s))
    }

    /// Whether the lease is in the list.
    pub(crate) fn contains(&self, id: LeaseId) -> bool {
        self.leases
            .binary_search_by_key(&id, |lease| lease.id)
            .is_ok()
    }

    /// The IDs, ordered by expiry.
    pub(crate) fn by_expiry(mut self) -> Vec<LeaseId> {
        self.leases
            .sort_unstable_by_key(|lease| (lease.expires, lease.id));
        self.leases.into_iter().map(|lease| lease.id).collect()
    }
}
