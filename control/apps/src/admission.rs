//! Admission: how many wakes are begun a second and how many pods apps may have, per tenant and in all, fair between tenants. A tenant is
//! a namespace. Pure: it limits what the autoscaler has decided, and never changes a decision.

mod bucket;

mod pods;

mod wakes;

mod shared;

use std::time::Duration;

use dormouse_activator::Problem;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::action::Action;
pub(crate) use pods::Held;
pub(crate) use shared::Admission;

/// Shortest time between two events about one object and one limit.
pub(crate) const EVENT_INTERVAL: Duration = Duration::from_mins(1);

/// The reason of the status and of the events of an app that has fewer pods than the autoscaler wants.
pub(crate) const PODS_LIMITED: &str = "PodsLimited";

/// The reason of wakes that wait for a limit.
const WAKES_LIMITED: &str = "WakesLimited";

/// Limits of one resource; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Of one tenant.
    pub per_tenant: u32,
    /// Of all tenants together.
    pub in_all: u32,
}

/// The limits of wakes and pods; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Wakes a second; as many may begin at once. Further ones wait.
    pub wakes: Shares,
    /// Pods of one app.
    pub pods_per_app: u32,
    /// Pods of a tenant and of the cluster, those that are being removed included. Apps wait for further ones.
    pub pods: Shares,
}

impl Default for Limits {
    /// Far above the use of a healthy cluster: they bound what a flood of requests can start.
    fn default() -> Self {
        Self {
            wakes: Shares {
                per_tenant: 1_000,
                in_all: 10_000,
            },
            pods_per_app: 100,
            pods: Shares {
                per_tenant: 10_000,
                in_all: 100_000,
            },
        }
    }
}

impl Limits {
    /// The flag that sets the limit of wakes.
    pub(crate) fn wakes_flag(scope: Scope) -> &'static str {
        match scope {
            Scope::All => "--wakes-in-all",
            Scope::App | Scope::Tenant => "--wakes-per-tenant",
        }
    }
}

/// Which limit something waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    /// That of the app itself.
    App,
    /// That of its tenant.
    Tenant,
    /// That of all tenants.
    All,
}

/// The event about a tenant whose wakes wait.
pub(crate) fn wakes_limited(tenant: String, scope: Scope) -> Action {
    let message = waiting_message(scope);
    Action::RecordEvent {
        about: Box::new(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(tenant.clone()),
            namespace: Some(tenant),
            ..ObjectReference::default()
        }),
        reason: WAKES_LIMITED.into(),
        message,
    }
}

fn waiting_message(scope: Scope) -> String {
    let flag = Limits::wakes_flag(scope);
    format!("apps wait before they are woken: {flag} is reached")
}

/// Why an app has no pod yet whose wake waits, for its clients.
pub(crate) fn waiting_problem(scope: Scope) -> Problem {
    Problem {
        message: format!("{WAKES_LIMITED}: {}", waiting_message(scope)),
        retry_after: None,
    }
}
