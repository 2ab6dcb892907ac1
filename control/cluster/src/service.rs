//! Services: the addresses and node ports that the API gives them, and what it fills in where a manifest has nothing.
//!
//! Reading order: the ranges of addresses ([`ServiceRanges`]), numbers of a range that are taken (`pool`), what a Service
//! holds of them and gets (`allocator`), the fields that are not set (`defaults`), and the writes ([`Services`]).

mod allocator;
mod defaults;
mod pool;
mod range;
mod write;

pub use defaults::set_defaults;
pub use range::{IpFamily, RangeError, ServiceRange, ServiceRanges};
pub use write::{ServiceError, Services};

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

/// The value of `clusterIP` of a headless Service.
pub const HEADLESS: &str = "None";

/// The types of Services, by their `type`, of which an empty one is a cluster IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Has a cluster IP, or is headless.
    ClusterIp,
    /// Has a port of every node, too.
    NodePort,
    /// Has addresses from outside, too.
    LoadBalancer,
    /// Is a name only.
    ExternalName,
}

impl Type {
    /// The types' names.
    pub const NAMES: [&'static str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

    /// The type of a Service; an unknown one, which validation refuses, is taken for the simplest.
    pub fn of(spec: &ServiceSpec) -> Self {
        match spec.type_.as_deref() {
            Some("NodePort") => Self::NodePort,
            Some("LoadBalancer") => Self::LoadBalancer,
            Some("ExternalName") => Self::ExternalName,
            _ => Self::ClusterIp,
        }
    }

    /// Whether Services of this type have node ports, unless they decline them.
    pub fn has_node_ports(self) -> bool {
        matches!(self, Self::NodePort | Self::LoadBalancer)
    }
}

/// Whether a Service has no cluster IP on purpose.
pub fn is_headless(spec: &ServiceSpec) -> bool {
    let first = spec.cluster_ips.iter().flatten().next();
    spec.cluster_ip
        .as_ref()
        .filter(|ip| !ip.is_empty())
        .or(first)
        .is_some_and(|ip| ip == HEADLESS)
}

/// Whether a Service selects pods; the endpoints of others are written by users.
pub fn has_selector(spec: &ServiceSpec) -> bool {
    spec.selector
        .as_ref()
        .is_some_and(|selector| !selector.is_empty())
}

/// Whether clients outside of the cluster reach a Service.
pub(crate) fn is_external(spec: &ServiceSpec) -> bool {
    let type_ = Type::of(spec);
    let has_addresses = spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty());
    type_.has_node_ports() || (type_ == Type::ClusterIp && has_addresses)
}

/// Whether a Service has a port on which each node reports whether it has endpoints.
pub(crate) fn has_health_port(spec: &ServiceSpec) -> bool {
    Type::of(spec) == Type::LoadBalancer && spec.external_traffic_policy.as_deref() == Some("Local")
}

/// A Service's specification; that of a Service without one is empty.
pub(crate) fn spec_of(service: &Service) -> ServiceSpec {
    service.spec.clone().unwrap_or_default()
}
