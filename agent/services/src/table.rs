//! Finds the service port behind an address, a port and a protocol.

mod claims;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use crate::port::{Kind, ServicePort};
use crate::vip::{NodePort, Vip};

use claims::Claims;

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

/// Every service port of a node by its addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    vips: Claims<Vip>,
    node_ports: Claims<NodePort>,
    /// How many service ports have this cluster IP.
    cluster_ips: HashMap<IpAddr, u32>,
    /// How many service ports send to this backend on this node.
    local_backends: HashMap<Vip, u32>,
}

impl Table {
    /// What answers at an address other than the node's own.
    pub fn vip(&self, vip: &Vip) -> Option<Frontend<'_>> {
        let port = self.vips.winner(vip)?;
        let balanced = port.addresses.load_balancer_ips.contains(&vip.address);
        Some(Frontend {
            port,
            kind: port.kind(vip.address),
            limited: balanced && port.addresses.source_ranges.is_some(),
        })
    }

    /// What answers at the node's addresses.
    pub fn node_port(&self, node_port: &NodePort) -> Option<Frontend<'_>> {
        Some(Frontend {
            port: self.node_ports.winner(node_port)?,
            kind: Kind::NodePort,
            limited: false,
        })
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
    pub fn claimants<'a>(
        &'a self,
        vip: &Vip,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a> {
        self.vips.claimants(vip)
    }

    /// Every service port that claims a number at the nodes' addresses, the one that has it first.
    pub fn node_port_claimants<'a>(
        &'a self,
        node_port: &NodePort,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a> {
        self.node_ports.claimants(node_port)
    }

    /// Every number that is claimed at the nodes' addresses.
    pub fn node_ports(&self) -> impl Iterator<Item = &NodePort> {
        self.node_ports.places()
    }

    pub(crate) fn insert(&mut self, port: &Arc<ServicePort>) {
        for vip in port.vips() {
            self.vips.insert(vip, port);
        }
        if let Some(node_port) = node_port(port) {
            self.node_ports.insert(node_port, port);
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
        for vip in port.vips() {
            self.vips.remove(&vip, port);
        }
        if let Some(node_port) = node_port(port) {
            self.node_ports.remove(&node_port, port);
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

fn uncount<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
