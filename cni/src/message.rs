//! Requests of the plugin and replies of the agent: one of each per connection. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::error::{CniError, code};
use crate::names::{CONTAINER_ID_LEN_MAX, NETWORK_LEN_MAX, check_ifname, check_name};

/// Suffix of a reservation's network name; the name of a configuration cannot contain a colon.
const RESERVATION: &str = ":ipam";

/// The network name of addresses that are reserved for pods which another plugin wires to `network`. It differs from
/// `network`, so that GC and DEL of the one never touch the other.
pub fn reservation(network: &str) -> String {
    format!("{network}{RESERVATION}")
}

/// Whether this is the network name of a [`reservation`]: the attachment has an address but no link.
pub fn is_reservation(network: &str) -> bool {
    network.ends_with(RESERVATION)
}

/// One interface of one pod: the key of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    /// The network's name, or its [`reservation`].
    pub network: String,
    /// The runtime's container id.
    pub container_id: String,
    /// The interface's name inside the pod.
    pub ifname: String,
}

impl Attachment {
    /// Refuses names that cannot be stored: they become part of file names, of links' aliases, and of the journal.
    pub fn check(&self) -> Result<(), CniError> {
        let invalid = |why| CniError::new(code::INVALID_ENVIRONMENT, why);
        let network = self.network.strip_suffix(RESERVATION);
        check_name(network.unwrap_or(&self.network), NETWORK_LEN_MAX)
            .map_err(|why| invalid(format!("the network's name {why}")))?;
        check_name(&self.container_id, CONTAINER_ID_LEN_MAX)
            .map_err(|why| invalid(format!("the container id {why}")))?;
        check_ifname(&self.ifname)
    }
}

/// ADD's options: the capabilities `ips`, `mac`, `bandwidth` and `portMappings`, the pod and its cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// Requested addresses, at most one of each family, never IPv4-mapped; empty: the agent chooses.
    pub addresses: Vec<IpAddr>,
    /// Link-layer address of the pod's end, unicast; `None`: the agent chooses.
    pub mac: Option<[u8; 6]>,
    /// Limits of the pod's traffic.
    pub bandwidth: Option<Bandwidth>,
    /// Ports of the node for ports of the pod, sorted, without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
    /// The pod's cohort, if the agent's runtime starts it; the number is part of the pod's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<u32>,
    /// The Kubernetes pod, if a kubelet starts it.
    pub pod: Option<PodName>,
}

/// A port of the node for a port of the pod; neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortMapping {
    /// Port of the node.
    pub host: u16,
    /// Port of the pod.
    pub pod: u16,
    /// Their protocol.
    pub protocol: PortProtocol,
    /// The node's address, never IPv4-mapped; unspecified: all of the family; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortProtocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl PortProtocol {
    /// The name in Kubernetes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// Limits of a pod's traffic; at least one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bandwidth {
    /// Towards the pod.
    pub ingress: Option<Rate>,
    /// From the pod.
    pub egress: Option<Rate>,
}

/// A token bucket; both numbers are above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rate {
    /// Sustained rate, in bits per second.
    pub bits_per_second: u64,
    /// Bucket size, in bits.
    pub burst_bits: u64,
}

/// The Kubernetes pod of an attachment, from `CNI_ARGS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodName {
    /// `K8S_POD_NAMESPACE`
    pub namespace: String,
    /// `K8S_POD_NAME`
    pub name: String,
    /// `K8S_POD_UID`; older runtimes do not send it.
    pub uid: Option<String>,
}

/// A request of the plugin. ADD and CHECK carry the pod's namespace as a file descriptor: a path could name another
/// namespace by the time the agent opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "command",
    rename_all = "UPPERCASE",
    rename_all_fields = "camelCase"
)]
pub enum Request {
    /// Create and configure an interface; the reply is [`Reply::Wired`].
    Add {
        /// The new attachment.
        attachment: Attachment,
        /// Options of the runtime.
        wanted: Wanted,
    },
    /// Reserve an address for a pod that another plugin wires; the reply is [`Reply::Reserved`].
    Reserve {
        /// The holder of the address; its network is a [`reservation`].
        attachment: Attachment,
        /// Options of the runtime; MAC and bandwidth are left to the other plugin.
        wanted: Wanted,
    },
    /// Remove an attachment, even one that is only partly there.
    Del {
        /// The attachment to remove.
        attachment: Attachment,
    },
    /// Compare an attachment with ADD's result.
    Check {
        /// The attachment to compare.
        attachment: Attachment,
        /// The addresses in ADD's result.
        addresses: Vec<IpAddr>,
        /// The pod's link-layer address in that result, after all plugins of the chain.
        #[serde(default)]
        mac: Option<[u8; 6]>,
    },
    /// Report whether ADD can succeed now.
    Status {},
    /// Remove all attachments of a network that are not listed.
    Gc {
        /// The network's name, or its [`reservation`].
        network: String,
        /// Attachments to keep: (container id, interface). `None`: only those are removed whose pod is provably dead.
        valid: Option<Vec<(String, String)>>,
    },
}

impl Request {
    /// Refuses names that cannot be stored, ADD with the network of a reservation, and the reverse.
    pub fn check(&self) -> Result<(), CniError> {
        let Some(attachment) = self.attachment() else {
            return Ok(());
        };
        let is_right_kind = match self {
            Self::Add { .. } => !is_reservation(&attachment.network),
            Self::Reserve { .. } => is_reservation(&attachment.network),
            _ => true,
        };
        if !is_right_kind {
            let msg = format!(
                "network `{}` is of the wrong kind for this request",
                attachment.network
            );
            return Err(CniError::new(code::INVALID_ENVIRONMENT, msg));
        }
        attachment.check()
    }

    /// Whether `dormouse-agent offline`, which does not write the data path's maps, may serve it: the next agent adds new
    /// attachments to the maps, but would not know which entries to remove.
    pub fn may_be_offline(&self) -> bool {
        match self {
            // Ports of the node are served by the agent's Services.
            Self::Add { wanted, .. } => wanted.ports.is_empty(),
            Self::Reserve { .. } | Self::Check { .. } | Self::Status {} => true,
            Self::Del { .. } | Self::Gc { .. } => false,
        }
    }

    /// The request's attachment; STATUS and GC have none.
    pub fn attachment(&self) -> Option<&Attachment> {
        match self {
            Self::Add { attachment, .. }
            | Self::Reserve { attachment, .. }
            | Self::Del { attachment }
            | Self::Check { attachment, .. } => Some(attachment),
            Self::Status {} | Self::Gc { .. } => None,
        }
    }
}

/// A reply of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// Success without a result.
    Done,
    /// ADD's result.
    Wired(Wired),
    /// The result of an ADD that only reserves an address.
    Reserved(Reserved),
    /// Failure.
    Failed(CniError),
}

/// A link of a pod's attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Interface name.
    pub name: String,
    /// Link-layer address, six octets in hexadecimal: `02:d0:00:01:00:00`.
    pub mac: String,
}

/// The result of ADD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wired {
    /// The node's bridge to which the host's end belongs.
    pub bridge: Link,
    /// The veth's end on the node.
    pub host: Link,
    /// The veth's end in the pod.
    pub pod: Link,
    /// MTU of the three links, in bytes.
    pub mtu: u32,
    /// The pod's address, a /128.
    pub address: Ipv6Addr,
    /// The pod's default gateway.
    pub gateway: Ipv6Addr,
    /// The pod's IPv4 address, a /32; `None` on a node without `--prefix4`.
    #[serde(default)]
    pub address4: Option<Ipv4Addr>,
    /// The pod's default gateway for IPv4; present if `address4` is.
    #[serde(default)]
    pub gateway4: Option<Ipv4Addr>,
}

/// A reserved address of a pod that another plugin wires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved {
    /// The pod's address, of the node's prefix.
    pub address: Ipv6Addr,
    /// Length, in bits, of the prefix in which the other plugin's pods reach each other without a router.
    pub prefix_length: u8,
    /// The default gateway, which the other plugin assigns to its bridge.
    pub gateway: Ipv6Addr,
    /// The IPv4 address; `None` on a node without `--prefix4`.
    #[serde(default)]
    pub ipv4: Option<Reserved4>,
}

/// A reserved IPv4 address of a pod that another plugin wires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved4 {
    /// The pod's address, of the node's `--prefix4`.
    pub address: Ipv4Addr,
    /// Length, in bits, of the network in which the other plugin's pods reach each other without a router.
    pub prefix_length: u8,
    /// The default gateway, which the other plugin assigns to its bridge.
    pub gateway: Ipv4Addr,
}
