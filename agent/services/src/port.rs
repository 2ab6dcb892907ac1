//! Service ports: one port of a Service in one family, as a node programs it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::backend::{self, Backend, Backends, Candidates, Uses};
use crate::key::PortId;
use crate::service::{Addresses, Policy, PortSpec, ServiceSpec};
use crate::vip::Vip;

/// A set of backends: see [`ServicePort::set`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// Backends for policy Cluster.
    Cluster,
    /// Backends for policy Local.
    Local,
}

/// The sender of a packet to an external address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A pod of the cluster.
    Pod,
    /// This node.
    Node,
    /// Another host.
    Outside,
}

/// The answer of a service port to traffic of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// One backend of this set, which is not empty.
    Backends(Set),
    /// Rejected: there is no endpoint for it on any node.
    Reject,
    /// Dropped: other nodes have endpoints for it, this node has none.
    Drop,
}

/// One port of a Service in one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// Its name.
    pub id: PortId,
    /// When its Service was created, in seconds of Unix time.
    pub created_s: i64,
    /// `port`: its number at the Service's addresses.
    pub number: u16,
    /// `nodePort`: its number at nodes' addresses.
    pub node_port: Option<u16>,
    /// Its addresses.
    pub addresses: Arc<Addresses>,
    /// Timeout of session affinity in seconds; none without affinity.
    pub affinity_s: Option<u32>,
    /// internalTrafficPolicy.
    pub internal: Policy,
    /// externalTrafficPolicy.
    pub external: Policy,
    /// healthCheckNodePort.
    pub health_port: Option<u16>,
    /// Whether any endpoint of the cluster is usable.
    pub any_endpoints: bool,
    /// All backends of this node, sorted by address and port.
    pub backends: Backends,
}

impl ServicePort {
    /// A service port with the backends of its endpoints; none if the Service is not served in the family.
    pub(crate) fn new(
        id: PortId,
        service: &ServiceSpec,
        port: &PortSpec,
        candidates: Candidates,
    ) -> Option<Self> {
        let addresses = service.addresses[id.family.index()].as_ref()?;
        let is_external = port.node_port.is_some() || addresses.is_external();
        let uses = uses((service.internal, service.external), is_external);
        let (backends, any_endpoints) = backend::choose(candidates, uses, port.protocol);
        Some(Self {
            id,
            created_s: service.created_s,
            number: port.number,
            node_port: port.node_port,
            addresses: Arc::clone(addresses),
            affinity_s: service.affinity_s,
            internal: service.internal,
            external: service.external,
            health_port: service.health_port,
            any_endpoints,
            backends,
        })
    }

    /// For UDP: whether any endpoint is serving.
    pub(crate) fn is_answered(&self) -> bool {
        let mut backends = self.backends.iter();
        backends.any(|backend| backend.serving) || self.backends.any_stands()
    }

    /// For UDP: whether a serving endpoint has this address; flows to others are stale.
    pub(crate) fn answers_at(&self, place: (IpAddr, u16)) -> bool {
        match self.backends.at(place) {
            Some(backend) => backend.serving,
            None => self.stands_at(place),
        }
    }

    /// Whether an endpoint that is not a backend has this address: established connections to it continue.
    pub fn stands_at(&self, place: (IpAddr, u16)) -> bool {
        self.backends.stands_at(place)
    }

    /// Whether it has an address or a node port for external traffic.
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || self.addresses.is_external()
    }

    /// Whether any traffic uses the policy.
    pub fn uses(&self, policy: Policy) -> bool {
        let uses = uses((self.internal, self.external), self.is_external());
        match policy {
            Policy::Cluster => uses.cluster,
            Policy::Local => uses.local,
        }
    }

    /// The backends of a set.
    pub fn set(&self, set: Set) -> impl Iterator<Item = Backend> {
        self.backends.iter().filter(move |backend| match set {
            Set::Cluster => backend.for_cluster,
            Set::Local => backend.for_local,
        })
    }

    /// The answer to traffic to the cluster IP.
    pub fn internal_answer(&self) -> Answer {
        self.answer(match self.internal {
            Policy::Cluster => Set::Cluster,
            Policy::Local => Set::Local,
        })
    }

    /// The answer to traffic to the other addresses; policy Local applies only to senders outside the cluster.
    pub fn external_answer(&self, source: Source) -> Answer {
        self.answer(match (self.external, source) {
            (Policy::Local, Source::Outside) => Set::Local,
            _ => Set::Cluster,
        })
    }

    fn answer(&self, set: Set) -> Answer {
        if !self.any_endpoints {
            Answer::Reject
        } else if self.set(set).next().is_some() {
            Answer::Backends(set)
        } else {
            Answer::Drop
        }
    }

    /// The kind of one of its addresses; of several, the first.
    pub(crate) fn kind(&self, address: IpAddr) -> Kind {
        if address == self.addresses.cluster_ip {
            Kind::ClusterIp
        } else if self.addresses.external_ips.contains(&address) {
            Kind::External
        } else {
            Kind::LoadBalancer
        }
    }

    /// Its addresses with the number `port`; those of nodes have the node port.
    pub(crate) fn vips(&self) -> impl Iterator<Item = Vip> {
        let addresses = &*self.addresses;
        std::iter::once(&addresses.cluster_ip)
            .chain(&addresses.external_ips)
            .chain(&addresses.load_balancer_ips)
            .map(|address| Vip {
                address: *address,
                port: self.number,
                protocol: self.id.protocol,
            })
    }

    /// Whether it claims the same VIPs as another, with the same precedence.
    pub(crate) fn is_placed_as(&self, other: &Self) -> bool {
        self.number == other.number
            && self.node_port == other.node_port
            && self.created_s == other.created_s
            && self.addresses == other.addresses
    }
}

/// The policies in use, from the internal and the external one and whether there is external traffic.
fn uses((internal, external): (Policy, Policy), is_external: bool) -> Uses {
    let internal_local = internal == Policy::Local;
    let external_local = external == Policy::Local;
    Uses {
        cluster: !internal_local || is_external,
        local: internal_local || external_local && is_external,
    }
}

/// The kind of an address of a Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The cluster IP.
    ClusterIp,
    /// An external IP.
    External,
    /// An address of the load balancer.
    LoadBalancer,
    /// An address of a node, with the node port.
    NodePort,
}
