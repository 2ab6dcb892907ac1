//! Permits of slow calls: a limit for each kind of call, and a lower one for each tenant, so that neither a slow kind nor
//! one tenant delays the calls of others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limit of concurrent calls of a kind; further ones wait in their tasks.
const CALLS_MAX: usize = 256;
/// Limit of concurrent calls of a kind for one tenant.
const CALLS_PER_TENANT_MAX: usize = 64;
const _: () = assert!(CALLS_PER_TENANT_MAX * 2 <= CALLS_MAX);
/// Tenants without calls are removed when there are more than this.
const TENANTS_MAX: usize = 1_024;

/// A kind of slow calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Reads of sleeping apps.
    Read,
    /// Creations of pods, which ask the scheduler first.
    Create,
    /// Writes of apps' status.
    Publish,
    /// Deletions of pods.
    Delete,
    /// Writes of pods' status.
    PodStatus,
    /// Writes of nodes.
    Node,
    /// Kubernetes Events.
    Event,
}

/// A kind of calls, of all tenants or of one.
type Scope = (Kind, Option<Box<str>>);

/// The permits of all calls.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// The limit of each kind, and of each kind for a tenant.
    limits: Mutex<HashMap<Scope, Arc<Semaphore>>>,
}

/// The permit of one call.
pub(super) struct Permit {
    _tenant: OwnedSemaphorePermit,
    _kind: OwnedSemaphorePermit,
}

impl Permits {
    /// Waits until a call is permitted. The permits of a kind are given only to calls that have one of their tenant.
    pub(super) async fn acquire(&self, kind: Kind, tenant: &str) -> Option<Permit> {
        let of_tenant = self.limit(kind, Some(tenant), CALLS_PER_TENANT_MAX);
        let tenant = of_tenant.acquire_owned().await.ok()?;
        let of_kind = self.limit(kind, None, CALLS_MAX);
        let kind = of_kind.acquire_owned().await.ok()?;
        Some(Permit {
            _tenant: tenant,
            _kind: kind,
        })
    }

    fn limit(&self, kind: Kind, tenant: Option<&str>, calls_max: usize) -> Arc<Semaphore> {
        let mut limits = self.limits.lock();
        if limits.len() > TENANTS_MAX {
            limits.retain(|_, limit| Arc::strong_count(limit) > 1);
        }
        let limit = limits
            .entry((kind, tenant.map(Box::from)))
            .or_insert_with(|| Arc::new(Semaphore::new(calls_max)));
        Arc::clone(limit)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_tenant_at_its_limit_delays_no_other_tenant_and_no_other_kind() {
        let permits = Permits::default();
        let now = |kind, tenant| permits.acquire(kind, tenant).now_or_never().flatten();
        let held: Vec<_> = std::iter::from_fn(|| now(Kind::Create, "a")).collect();
        assert_eq!(held.len(), CALLS_PER_TENANT_MAX);
        assert!(now(Kind::Create, "b").is_some());
        assert!(now(Kind::Delete, "a").is_some());
        drop(held);
        assert!(now(Kind::Create, "a").is_some());
    }

    #[test]
    fn a_kind_at_its_limit_delays_no_other_kind() {
        let permits = Permits::default();
        let now = |kind, tenant: &str| permits.acquire(kind, tenant).now_or_never().flatten();
        let of_tenant = |tenant: usize| {
            let tenant = tenant.to_string();
            let all = std::iter::from_fn(|| now(Kind::Create, &tenant));
            all.collect::<Vec<_>>()
        };
        let held: Vec<_> = (1..=5).flat_map(of_tenant).collect();
        assert_eq!(held.len(), CALLS_MAX);
        assert!(now(Kind::Create, "b").is_none());
        assert!(now(Kind::Delete, "b").is_some());
    }

    #[test]
    fn tenants_without_calls_are_removed() {
        let permits = Permits::default();
        for tenant in 0..TENANTS_MAX * 2 {
            let tenant = tenant.to_string();
            drop(permits.acquire(Kind::Read, &tenant).now_or_never());
        }
        assert!(permits.limits.lock().len() <= TENANTS_MAX + 1);
    }
}
