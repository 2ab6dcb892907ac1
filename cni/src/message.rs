//! One request and one reply per connection between plugin and agent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::error::{CniError, code};
use crate::invocation::{CONTAINER_ID_LEN_MAX, NETWORK_LEN_MAX, check_ifname, check_name};

/// Ends the network of an attachment that only keeps an address; no configuration's name can have it.
const RESERVATION: &str = ":ipam";

/// The network under which addresses are kept for the pods that other plugins wire to `network`: what those plugins
/// delegate and what is wired here have separate lives.
pub fn reservation(network: &str) -> String {
    format!("{network}{RESERVATION}")
}

/// Whether an attachment of this network has no wiring of ours.
pub fn is_reservation(network: &str) -> bool {
    network.ends_with(RESERVATION)
}

/// The interface of a pod that a request is about.
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
    /// Refuses what could not be written down: names become part of files, of links' aliases, and of the journal.
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

/// What a runtime may ask of ADD beyond an interface: the capabilities `ips`, `mac` and `bandwidth`, whose it is, and what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// Certain addresses, at most one of each family; none is IPv4-mapped.
    pub addresses: Vec<IpAddr>,
    /// Link-layer address of the pod's end: a unicast one.
    pub mac: Option<[u8; 6]>,
    /// Limits of the pod's traffic.
    pub bandwidth: Option<Bandwidth>,
    /// The set of pods that it is of, if whoever asks knows: its address says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<u32>,
    /// The Kubernetes pod, if a kubelet asks.
    pub pod: Option<PodName>,
}

/// Limits of a pod's traffic; at least one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bandwidth {
    /// Towards the pod.
    pub ingress: Option<Rate>,
    /// From the pod.
    pub egress: Option<Rate>,
}

/// A token bucket; neither number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rate {
    /// In the long run, in bits per second.
    pub bits_per_second: u64,
    /// At once, in bits.
    pub burst_bits: u64,
}

/// Which Kubernetes pod an attachment is for, as kubelet says in `CNI_ARGS`.
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

/// What the plugin asks. For ADD and CHECK the pod's namespace travels along as a file descriptor: a path could name
/// another one by the time the agent opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "command",
    rename_all = "UPPERCASE",
    rename_all_fields = "camelCase"
)]
pub enum Request {
    /// Wire it; the reply is [`Reply::Wired`].
    Add {
        /// What to wire.
        attachment: Attachment,
        /// What the runtime asks for beyond an interface.
        wanted: Wanted,
    },
    /// Keep an address for it that another plugin will wire; the reply is [`Reply::Reserved`].
    Reserve {
        /// What to keep it for; its network is a [`reservation`].
        attachment: Attachment,
        /// What the runtime asks for; MAC and bandwidth are the other plugin's business.
        wanted: Wanted,
    },
    /// Unwire it, whatever is left of it.
    Del {
        /// What to unwire.
        attachment: Attachment,
    },
    /// Compare it with what ADD made.
    Check {
        /// What to compare.
        attachment: Attachment,
        /// The addresses that ADD's result named.
        addresses: Vec<IpAddr>,
        /// The link-layer address of the pod's end that it named, after all plugins of the chain.
        #[serde(default)]
        mac: Option<[u8; 6]>,
    },
    /// Could ADD succeed now?
    Status {},
    /// Unwire all of a network but those listed.
    Gc {
        /// The network's name.
        network: String,
        /// What to keep; without a list, only what is provably dead goes.
        valid: Option<Vec<(String, String)>>,
    },
}

impl Request {
    /// Refuses names that could not be written down, and wiring what is only kept or keeping what is wired.
    pub fn check(&self) -> Result<(), CniError> {
        let Some(attachment) = self.attachment() else {
            return Ok(());
        };
        let fits = match self {
            Self::Add { .. } => !is_reservation(&attachment.network),
            Self::Reserve { .. } => is_reservation(&attachment.network),
            _ => true,
        };
        if !fits {
            let msg = format!("network `{}` is of the other kind", attachment.network);
            return Err(CniError::new(code::INVALID_ENVIRONMENT, msg));
        }
        attachment.check()
    }

    /// Whether an agent without a data path may do it while no other runs: what is made then is told to the data path
    /// later, but what is removed would stay in it.
    pub fn may_be_offline(&self) -> bool {
        match self {
            Self::Add { .. } | Self::Reserve { .. } | Self::Check { .. } | Self::Status {} => true,
            Self::Del { .. } | Self::Gc { .. } => false,
        }
    }

    /// The attachment that a request is about, if it is about one.
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

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// Done, and there is nothing to tell.
    Done,
    /// ADD's result.
    Wired(Wired),
    /// The result of an ADD that only keeps an address.
    Reserved(Reserved),
    /// Not done.
    Failed(CniError),
}

/// One end of a pod's wiring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Interface name.
    pub name: String,
    /// Link-layer address, as `02:…`.
    pub mac: String,
}

/// What ADD made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wired {
    /// The node's bridge.
    pub bridge: Link,
    /// The host's end.
    pub host: Link,
    /// The pod's end.
    pub pod: Link,
    /// Largest packet on each of them, in bytes.
    pub mtu: u32,
    /// The pod's address; it holds the /128.
    pub address: Ipv6Addr,
    /// The pod's default gateway.
    pub gateway: Ipv6Addr,
    /// The pod's IPv4 address, where the node has any; it holds the /32.
    #[serde(default)]
    pub address4: Option<Ipv4Addr>,
    /// Its default gateway for IPv4.
    #[serde(default)]
    pub gateway4: Option<Ipv4Addr>,
}

/// An address that is kept for a pod that another plugin wires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved {
    /// The address.
    pub address: Ipv6Addr,
    /// Length of the prefix in which the plugin's pods reach each other without a router, in bits.
    pub prefix_length: u8,
    /// The default gateway that the other plugin shall make.
    pub gateway: Ipv6Addr,
    /// The same for IPv4, where the node has any.
    #[serde(default)]
    pub ipv4: Option<Reserved4>,
}

/// An IPv4 address that is kept for a pod that another plugin wires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserved4 {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of the network in which the plugin's pods reach each other without a router, in bits.
    pub prefix_length: u8,
    /// The default gateway that the other plugin shall make.
    pub gateway: Ipv4Addr,
}
