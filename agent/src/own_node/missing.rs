//! What a node lacks: why it wires no pods, or cannot start yet.

use std::net::IpAddr;

/// Why the node wires no pods, though Services are served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPods {
    /// `--prefix none`.
    #[error("this node wires no pods (--prefix none): another plugin does")]
    Asked,
    /// The cluster has no IPv6 pods.
    #[error(
        "Node {node} has no IPv6 range in spec.podCIDRs ({}): pods need one; only Services are served, beside another plugin",
        .cidrs.join(", ")
    )]
    NoIpv6 {
        /// The node's name.
        node: String,
        /// Its podCIDRs.
        cidrs: Vec<String>,
    },
    /// A range cannot be used.
    #[error("Node {node}: {cidr} of spec.podCIDRs cannot be used: {why}; only Services are served")]
    Unusable {
        /// The node's name.
        node: String,
        /// The range.
        cidr: String,
        /// The reason.
        why: String,
    },
}

impl NoPods {
    /// Whether other ranges of the Node object would give pods a network.
    pub fn is_by_object(&self) -> bool {
        matches!(self, Self::NoIpv6 { .. } | Self::Unusable { .. })
    }
}

/// What must be known before the node can start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The Node object was not received.
    #[error(
        "Node {0} was not received from the API server yet; give --prefix and --address to start without it"
    )]
    Node(String),
    /// There is no such object.
    #[error(
        "there is no Node {0} at the API server: is --node the name under which kubelet registers it?"
    )]
    Absent(String),
    /// There are neither ranges nor an address whose prefix the network assigns.
    #[error(
        "Node {node} has neither spec.podCIDRs nor an IPv6 address of type InternalIP, whose prefix a network of --network-profile {profile} assigns to the machine; give --prefix, or --prefix none if another plugin wires the pods"
    )]
    Assigned {
        /// The node's name.
        node: String,
        /// The name of the network profile.
        profile: &'static str,
    },
    /// There are neither ranges nor a prefix in the metadata.
    #[error(
        "Node {node} has no spec.podCIDRs, and the metadata service names no IPv6 prefix of the uplink, which a network of --network-profile {profile} assigns; assign one to the interface, or give --prefix, or --prefix none if another plugin wires the pods"
    )]
    Metadata {
        /// The node's name.
        node: String,
        /// The name of the network profile.
        profile: &'static str,
    },
    /// No ranges are assigned.
    #[error(
        "Node {0} has no spec.podCIDRs yet: kube-controller-manager assigns them with --allocate-node-cidrs; give --prefix, or --prefix none if another plugin wires the pods"
    )]
    PodCidrs(String),
    /// It has no address yet.
    #[error("Node {node} has no {family} address of type InternalIP yet; give {flag}")]
    Address {
        /// The node's name.
        node: String,
        /// The name of the family.
        family: &'static str,
        /// The flag in place of it.
        flag: &'static str,
    },
    /// Its addresses are those of another machine.
    #[error(
        "no interface of this machine has {address}, an InternalIP of Node {node}; give {flag}"
    )]
    Elsewhere {
        /// The node's name.
        node: String,
        /// The address.
        address: IpAddr,
        /// The flag in place of it.
        flag: &'static str,
    },
}
