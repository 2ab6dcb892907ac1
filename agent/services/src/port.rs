//! One port of a Service in one family, as a node serves it: what a data plane holds.

use std::net::IpAddr;
use std::sync::Arc;

use crate::backend::{self, Backend, Backends, Candidates, Uses};
use crate::key::PortId;
use crate::service::{Addresses, Policy, PortSpec, ServiceSpec};
use crate::vip::Vip;

/// The backends that a packet may be sent to: see [`ServicePort::set`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Set {
    /// Those for policy Cluster.
    Cluster,
    /// Those for policy Local.
    Local,
}

/// Where a packet to an outside address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A pod of the cluster.
    Pod,
    /// This node.
    Node,
    /// Anywhere else.
    Outside,
}

/// What a service port has for traffic of one kind.
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
    /// Its number at every address but the nodes'.
    pub number: u16,
    /// Its number at the nodes' addresses.
    pub node_port: Option<u16>,
    /// Its addresses.
    pub addresses: Arc<Addresses>,
    /// How long a client keeps its backend; none: it need not.
    pub affinity_s: Option<u32>,
    /// Which endpoints traffic from inside may use.
    pub internal: Policy,
    /// Which endpoints traffic from outside may use.
    pub external: Policy,
    /// Where load balancers ask for the number of local endpoints.
    pub health_port: Option<u16>,
    /// Whether some endpoint is usable somewhere in the cluster.
    pub any_endpoints: bool,
    /// All backends that this node may send to, sorted by address and port.
    pub backends: Backends,
}

impl ServicePort {
    /// The port, with the backends that its endpoints amount to.
    pub(crate) fn new(
        id: PortId,
        service: &ServiceSpec,
        port: &PortSpec,
        addresses: &Arc<Addresses>,
        candidates: Candidates,
    ) -> Self {
        let is_external = port.node_port.is_some() || addresses.is_external();
        let uses = uses((service.internal, service.external), is_external);
        let (backends, any_endpoints) = backend::choose(candidates, uses, port.protocol);
        Self {
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
        }
    }

    /// For UDP: whether some endpoint answers.
    pub(crate) fn is_answered(&self) -> bool {
        let mut backends = self.backends.iter();
        backends.any(|backend| backend.serving) || self.backends.any_stands()
    }

    /// For UDP: whether an endpoint answers there; flows to others are stale.
    pub(crate) fn answers_at(&self, place: (IpAddr, u16)) -> bool {
        match self.backends.at(place) {
            Some(backend) => backend.serving,
            None => self.stands_at(place),
        }
    }

    /// Whether there is an endpoint that is no backend, and to which standing connections may go on all the same.
    pub fn stands_at(&self, place: (IpAddr, u16)) -> bool {
        self.backends.stands_at(place)
    }

    /// Whether it has an address or a port that is meant for traffic from outside.
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || self.addresses.is_external()
    }

    /// Whether traffic of some kind can use the policy.
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

    /// What traffic to the cluster IP gets.
    pub fn internal_answer(&self) -> Answer {
        self.answer(match self.internal {
            Policy::Cluster => Set::Cluster,
            Policy::Local => Set::Local,
        })
    }

    /// What traffic to the other addresses gets; policy Local binds only those who come from outside.
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

    /// What an address of its own is to it; of several, the first.
    pub(crate) fn kind(&self, address: IpAddr) -> Kind {
        if address == self.addresses.cluster_ip {
            Kind::ClusterIp
        } else if self.addresses.external_ips.contains(&address) {
            Kind::External
        } else {
            Kind::LoadBalancer
        }
    }

    /// Its addresses that come with the port's number; those of nodes come with the node port.
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

    /// Whether it is found at the same places as another, with the same precedence.
    pub(crate) fn is_placed_as(&self, other: &Self) -> bool {
        self.number == other.number
            && self.node_port == other.node_port
            && self.created_s == other.created_s
            && self.addresses == other.addresses
    }
}

/// The policies that traffic can use, given those for inside and outside, and whether there is an outside.
fn uses((internal, external): (Policy, Policy), is_external: bool) -> Uses {
    let internal_local = internal == Policy::Local;
    let external_local = external == Policy::Local;
    Uses {
        cluster: !internal_local || is_external,
        local: internal_local || external_local && is_external,
    }
}

/// What an address is to its service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The address inside the cluster.
    ClusterIp,
    /// An external IP.
    External,
    /// An address of a load balancer.
    LoadBalancer,
    /// An address of the node, at the node port.
    NodePort,
}
