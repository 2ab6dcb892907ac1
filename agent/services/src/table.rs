//! The table of service ports by VIP: address, port and protocol.

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
    /// The kind of the address.
    pub kind: Kind,
    /// Whether source ranges limit its clients.
    pub limited: bool,
}

/// All service ports of a node by VIP.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    vips: Claims<Vip>,
    node_ports: Claims<NodePort>,
    /// Number of service ports with this cluster IP.
    cluster_ips: HashMap<IpAddr, u32>,
    /// Number of service ports with this external IP or load balancer address.
    external_ips: HashMap<IpAddr, u32>,
    /// Number of service ports with this backend on this node.
    local_backends: HashMap<Vip, u32>,
}

impl Table {
    /// The service port at an address other than the node's.
    pub fn vip(&self, vip: &Vip) -> Option<Frontend<'_>> {
        let port = self.vips.winner(vip)?;
        let balanced = port.addresses.load_balancer_ips.contains(&vip.address);
        Some(Frontend {
            port,
            kind: port.kind(vip.address),
            limited: balanced && port.addresses.source_ranges.is_some(),
        })
    }

    /// The service port at the node's addresses.
    pub fn node_port(&self, node_port: &NodePort) -> Option<Frontend<'_>> {
        Some(Frontend {
            port: self.node_ports.winner(node_port)?,
            kind: Kind::NodePort,
            limited: false,
        })
    }

    /// Whether the address is a cluster IP of a service port.
    pub fn is_cluster_ip(&self, address: IpAddr) -> bool {
        self.cluster_ips.contains_key(&address)
    }

    /// Whether the address is an external IP or a load balancer's address of a service port.
    pub fn is_external_ip(&self, address: IpAddr) -> bool {
        self.external_ips.contains_key(&address)
    }

    /// Whether this is a backend of a service port on this node.
    pub fn is_local_backend(&self, backend: &Vip) -> bool {
        self.local_backends.contains_key(backend)
    }

    /// All service ports that claim a VIP, the winner first.
    pub fn claimants<'a>(
        &'a self,
        vip: &Vip,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a> {
        self.vips.claimants(vip)
    }

    /// All service ports that claim a node port, the winner first.
    pub fn node_port_claimants<'a>(
        &'a self,
        node_port: &NodePort,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a> {
        self.node_ports.claimants(node_port)
    }

    /// All claimed node ports.
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
        for address in port.addresses.external() {
            *self.external_ips.entry(address).or_default() += 1;
        }
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
        for address in port.addresses.external() {
            uncount(&mut self.external_ips, &address);
        }
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
