//! The node's name and addresses, and the ranges of its cluster.

use std::net::IpAddr;

use crate::address::{Family, Prefix};

/// The addresses of a node at which NodePorts answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodePortAddresses {
    /// The primary address of each family.
    Primary,
    /// The addresses inside these ranges; all of a family in which none is given, or one of length 0.
    Within(Vec<Prefix>),
}

/// The addresses of a node; they may change while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAddresses {
    /// The primary address of each family.
    pub primary: Vec<IpAddr>,
    /// Every address on the node's interfaces.
    pub local: Vec<IpAddr>,
}

/// The constant parameters of a node and of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Endpoints with this `nodeName` are local.
    pub name: String,
    /// Its addresses.
    pub addresses: NodeAddresses,
    /// A source inside the first range of its family counts as a pod.
    pub pod_ranges: Vec<Prefix>,
    /// The ranges of cluster IPs; may be empty.
    pub service_ranges: Vec<Prefix>,
    /// The addresses at which NodePorts answer.
    pub node_port_addresses: NodePortAddresses,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
}

impl Node {
    /// Whether the address is on an interface of this node, or a loopback address.
    pub fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.local.contains(&address)
    }

    /// The range whose addresses count as pods.
    pub fn pod_range(&self, family: Family) -> Option<&Prefix> {
        let mut ranges = self.pod_ranges.iter();
        ranges.find(|range| range.family() == family)
    }

    /// Whether the address counts as a pod's.
    pub fn is_pod(&self, address: IpAddr) -> bool {
        let range = self.pod_range(Family::of(address));
        range.is_some_and(|range| range.contains(address))
    }

    /// Whether the address is in a range of cluster IPs.
    pub fn is_service_address(&self, address: IpAddr) -> bool {
        let mut ranges = self.service_ranges.iter();
        ranges.any(|range| range.contains(address))
    }

    /// The primary address of a family.
    pub fn primary(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.addresses.primary.iter().copied();
        addresses.find(|address| Family::of(*address) == family)
    }

    /// The addresses at which NodePorts of a family answer; never a loopback address.
    pub fn node_port_addresses(&self, family: Family) -> Vec<IpAddr> {
        let local = self.addresses.local.iter().copied();
        let answering = local
            .filter(|address| Family::of(*address) == family && self.answers_node_ports(*address));
        answering.collect()
    }

    /// Whether NodePorts answer at this address.
    pub fn answers_node_ports(&self, address: IpAddr) -> bool {
        if address.is_loopback() || !self.addresses.local.contains(&address) {
            return false;
        }
        let family = Family::of(address);
        match &self.node_port_addresses {
            NodePortAddresses::Primary => {
                let primary = self.primary(family);
                primary.is_none_or(|primary| primary == address)
            }
            NodePortAddresses::Within(ranges) => {
                let mut ranges = ranges.iter().filter(|range| range.family() == family);
                let open = ranges.clone().all(|_| false) || ranges.clone().any(is_everything);
                open || ranges.any(|range| range.contains(address))
            }
        }
    }
}

fn is_everything(range: &Prefix) -> bool {
    range.length() == 0
}
