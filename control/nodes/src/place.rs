//! The addresses that the pods of a node can have.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use crate::Prefix;

/// The networks of a node's pods, and the node's own addresses; empty where they are not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    prefixes: Vec<Prefix>,
    addresses: Vec<IpAddr>,
}

/// Why a pod does not have an address, or a Service none outside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No host has such an address.
    #[error("the address {address} {why}")]
    Unusable {
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The cluster uses it.
    #[error("the address {address} is in {by} of the control plane")]
    Reserved {
        /// The address.
        address: IpAddr,
        /// The network of VIPs, of cluster IPs, of an activator or of control.
        by: Prefix,
    },
    /// It is in none of the prefixes of the pod's node.
    #[error("the address {address} is outside the prefix of the pod's node, {prefix}")]
    Outside {
        /// The address.
        address: IpAddr,
        /// The prefix of the family, or the first of them.
        prefix: Prefix,
    },
    /// A pod with hostNetwork has an address of its node.
    #[error("the address {address} is none of the pod's node, whose network the pod uses")]
    NotHost {
        /// The address.
        address: IpAddr,
    },
    /// Another node has it, or its pods.
    #[error("the address {address} is one of node {by}")]
    Taken {
        /// The address.
        address: IpAddr,
        /// The other node.
        by: String,
    },
}

impl Place {
    /// The place with these networks of pods and these addresses of the node.
    pub fn new(prefixes: Vec<Prefix>, addresses: Vec<IpAddr>) -> Self {
        Self {
            prefixes,
            addresses,
        }
    }

    /// The place that a Node object describes.
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let several = spec.and_then(|spec| spec.pod_cidrs.as_ref());
        let one = spec.and_then(|spec| spec.pod_cidr.as_ref());
        let prefixes = several.into_iter().flatten().chain(one);
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        let addresses = addresses.into_iter().flatten();
        Self {
            prefixes: prefixes.filter_map(|text| text.parse().ok()).collect(),
            addresses: addresses
                .filter_map(|one| one.address.parse().ok())
                .collect(),
        }
    }

    /// Refuses an address that no pod of this node has. Where the node has no prefix of the address's family, it may be any.
    pub(crate) fn check(&self, address: IpAddr, host_network: bool) -> Result<(), AddressError> {
        if host_network {
            let is_own = self.addresses.is_empty() || self.addresses.contains(&address);
            return is_own
                .then_some(())
                .ok_or(AddressError::NotHost { address });
        }
        let of_family = |prefix: &&Prefix| prefix.is_ipv6() == address.is_ipv6();
        let mut prefixes = self.prefixes.iter().filter(of_family).peekable();
        let Some(prefix) = prefixes.peek().map(|prefix| **prefix) else {
            return Ok(());
        };
        prefixes
            .any(|prefix| prefix.contains(address))
            .then_some(())
            .ok_or(AddressError::Outside { address, prefix })
    }
}
