//! Events about objects (the input) and changes of service ports for a data path (the output).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::address::Family;
use crate::key::ServiceKey;
use crate::port::ServicePort;
use crate::problem::Problem;
use crate::vip::Vip;

/// A Kubernetes object from which services are computed.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// A Service: addresses, ports and policies.
    Service(&'a Service),
    /// An EndpointSlice: endpoints of a Service.
    EndpointSlice(&'a EndpointSlice),
    /// A Node: only this node's zone is used.
    Node(&'a Node),
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// New or changed.
    Applied(Object<'a>),
    /// Deleted; this is its last state.
    Deleted(Object<'a>),
}

/// A change of a service port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// Added.
    Added(Arc<ServicePort>),
    /// Changed.
    Replaced {
        /// The previous state.
        old: Arc<ServicePort>,
        /// The new state.
        new: Arc<ServicePort>,
    },
    /// Removed.
    Removed(Arc<ServicePort>),
}

impl PortChange {
    /// The service port before the change.
    pub fn before(&self) -> Option<&Arc<ServicePort>> {
        match self {
            Self::Added(_) => None,
            Self::Replaced { old, .. } | Self::Removed(old) => Some(old),
        }
    }

    /// The service port after the change.
    pub fn after(&self) -> Option<&Arc<ServicePort>> {
        match self {
            Self::Added(new) | Self::Replaced { new, .. } => Some(new),
            Self::Removed(_) => None,
        }
    }

    /// Whether addresses, ports or precedence differ, not only backends and policies.
    pub(crate) fn moves(&self) -> bool {
        match self {
            Self::Replaced { old, new } => !old.is_placed_as(new),
            Self::Added(_) | Self::Removed(_) => true,
        }
    }
}

/// The result of one sync.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The changed service ports.
    pub ports: Vec<PortChange>,
    /// The VIPs whose winner may have changed: see [`crate::Services::frontend`].
    pub vips: Vec<Vip>,
    /// The services whose health check answer changed: see [`crate::Services::health_checks`].
    pub health: Vec<ServiceKey>,
    /// By family: whether UDP flows must be checked with [`crate::Services::is_stale`].
    pub scan_flows: [bool; 2],
    /// Conflicts between services that these changes caused or affected.
    pub problems: Vec<Problem>,
}

impl Changes {
    /// Whether UDP flows of this family must be checked.
    pub fn scans(&self, family: Family) -> bool {
        self.scan_flows[family.index()]
    }
}
