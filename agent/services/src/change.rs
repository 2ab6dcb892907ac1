//! What comes in (events about objects) and what goes out (changes for a data plane).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::address::Family;
use crate::key::ServiceKey;
use crate::port::ServicePort;
use crate::problem::Problem;
use crate::table::Vip;

/// An object that services are made of.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// Addresses, ports and policies.
    Service(&'a Service),
    /// Endpoints of a Service.
    EndpointSlice(&'a EndpointSlice),
    /// A node: only this one counts, and of it only the zone.
    Node(&'a Node),
}

/// What happened to an object.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It is there, like this, new or changed.
    Applied(Object<'a>),
    /// It is gone; this was its last state.
    Deleted(Object<'a>),
}

/// What happened to a service port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// It is served from now on.
    Added(Arc<ServicePort>),
    /// It is served otherwise.
    Replaced {
        /// As it was.
        old: Arc<ServicePort>,
        /// As it is.
        new: Arc<ServicePort>,
    },
    /// It is not served any more.
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

    /// Whether its addresses, numbers or precedence differ, not only its backends and policies.
    pub(crate) fn moves(&self) -> bool {
        match self {
            Self::Replaced { old, new } => !old.is_placed_as(new),
            Self::Added(_) | Self::Removed(_) => true,
        }
    }
}

/// Everything that one sync changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The service ports that differ.
    pub ports: Vec<PortChange>,
    /// The VIPs that another service port may answer from now on, or none: ask [`crate::Services::frontend`].
    pub vips: Vec<Vip>,
    /// The services whose health answer differs: ask [`crate::Services::health_checks`].
    pub health: Vec<ServiceKey>,
    /// By family: whether known UDP flows must be looked at with [`crate::Services::is_stale`].
    pub scan_flows: [bool; 2],
    /// Conflicts between services that these changes made or touched.
    pub problems: Vec<Problem>,
}

impl Changes {
    /// Whether flows of this family must be looked at.
    pub fn scans(&self, family: Family) -> bool {
        self.scan_flows[family.index()]
    }
}
