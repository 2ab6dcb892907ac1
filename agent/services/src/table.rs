//! Finds the service port behind an address, a port and a protocol.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::Family;
use crate::key::Protocol;
use crate::port::{Kind, ServicePort};

/// What a packet is sent to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vip {
    /// The destination address.
    pub address: IpAddr,
    /// The destination port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            SocketAddr::new(self.address, self.port),
            self.protocol
        )
    }
}

/// A number at the nodes' addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodePort {
    /// The family of the addresses.
    pub family: Family,
    /// The destination port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// The service port that answers at a VIP.
#[derive(Clone, Copy, Debug)]
pub struct Frontend<'a> {
    /// The service port.
    pub port: &'a Arc<ServicePort>,
    /// What the address is to it.
    pub kind: Kind,
    /// Whether only its source ranges may use it.
    pub limited: bool,
}

/// The claim of one service port on a VIP, by one or more kinds of address.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    port: Arc<ServicePort>,
    kinds: Vec<Kind>,
}

impl Claim {
    fn frontend(&self) -> Option<Frontend<'_>> {
        let balanced = self.kinds.contains(&Kind::LoadBalancer);
        Some(Frontend {
            port: &self.port,
            kind: self.kinds.iter().copied().min()?,
            limited: balanced && self.port.addresses.source_ranges.is_some(),
        })
    }

    /// The oldest comes first; names decide between services of the same second.
    fn precedes(&self, port: &ServicePort) -> bool {
        (self.port.created_s, &self.port.id) < (port.created_s, &port.id)
    }
}

/// Every service port of a node by its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    vips: HashMap<Vip, Vec<Claim>>,
    node_ports: HashMap<NodePort, Vec<Claim>>,
    /// How many service ports have this cluster IP.
    cluster_ips: HashMap<IpAddr, usize>,
    /// How many service ports send to this backend on this node.
    local_backends: HashMap<Vip, usize>,
}

impl Table {
    /// What answers at an address other than the node's own.
    pub fn vip(&self, vip: &Vip) -> Option<Frontend<'_>> {
        self.vips.get(vip)?.first()?.frontend()
    }

    /// What answers at the node's addresses.
    pub fn node_port(&self, node_port: &NodePort) -> Option<Frontend<'_>> {
        self.node_ports.get(node_port)?.first()?.frontend()
    }

    /// Whether the address is the cluster IP of a service that is served.
    pub fn is_cluster_ip(&self, address: IpAddr) -> bool {
        self.cluster_ips.contains_key(&address)
    }

    /// Whether a service port sends to this backend, and the backend is on this node.
    pub fn is_local_backend(&self, backend: &Vip) -> bool {
        self.local_backends.contains_key(backend)
    }

    /// Every service port that claims a VIP, the one that has it first.
    pub fn claimants(&self, vip: &Vip) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.vips
            .get(vip)
            .into_iter()
            .flatten()
            .map(|claim| &claim.port)
    }

    /// Every service port that claims a number at the nodes' addresses, the one that has it first.
    pub fn node_port_claimants(
        &self,
        node_port: &NodePort,
    ) -> impl Iterator<Item = &Arc<ServicePort>> {
        self.node_ports
            .get(node_port)
            .into_iter()
            .flatten()
            .map(|claim| &claim.port)
    }

    /// Every number that is claimed at the nodes' addresses.
    pub fn node_ports(&self) -> impl Iterator<Item = &NodePort> {
        self.node_ports.keys()
    }

    pub(crate) fn insert(&mut self, port: &Arc<ServicePort>) {
        for (vip, kind) in port.vips() {
            claim(self.vips.entry(vip).or_default(), port, kind);
        }
        if let Some(key) = node_port(port) {
            claim(
                self.node_ports.entry(key).or_default(),
                port,
                Kind::NodePort,
            );
        }
        *self
            .cluster_ips
            .entry(port.addresses.cluster_ip)
            .or_default() += 1;
        for key in local_backends(port) {
            *self.local_backends.entry(key).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, port: &ServicePort) {
        for (vip, _) in port.vips() {
            release(&mut self.vips, &vip, port);
        }
        if let Some(key) = node_port(port) {
            release(&mut self.node_ports, &key, port);
        }
        uncount(&mut self.cluster_ips, &port.addresses.cluster_ip);
        for key in local_backends(port) {
            uncount(&mut self.local_backends, &key);
        }
    }
}

/// The number of a service port at the nodes' addresses.
pub(crate) fn node_port(port: &ServicePort) -> Option<NodePort> {
    Some(NodePort {
        family: port.id.family,
        port: port.node_port?,
        protocol: port.id.protocol,
    })
}

fn local_backends(port: &ServicePort) -> impl Iterator<Item = Vip> {
    let local = port.backends.iter().filter(|backend| backend.local);
    local.map(|backend| Vip {
        address: backend.address,
        port: backend.port,
        protocol: port.id.protocol,
    })
}

fn claim(claims: &mut Vec<Claim>, port: &Arc<ServicePort>, kind: Kind) {
    let place = claims.partition_point(|claim| claim.precedes(port));
    match claims
        .get_mut(place)
        .filter(|claim| claim.port.id == port.id)
    {
        Some(claim) => claim.kinds.push(kind),
        None => claims.insert(
            place,
            Claim {
                port: Arc::clone(port),
                kinds: vec![kind],
            },
        ),
    }
}

fn release<K: std::hash::Hash + Eq>(
    claims: &mut HashMap<K, Vec<Claim>>,
    key: &K,
    port: &ServicePort,
) {
    if let Some(list) = claims.get_mut(key) {
        list.retain(|claim| claim.port.id != port.id);
        if list.is_empty() {
            claims.remove(key);
        }
    }
}

fn uncount<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
