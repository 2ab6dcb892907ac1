//! One request and one reply per connection between plugin and agent.

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use crate::error::{CniError, code};
use crate::invocation::{CONTAINER_ID_LEN_MAX, NETWORK_LEN_MAX, check_ifname, check_name};

/// The interface of a pod that a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    /// The network's name.
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
        check_name(&self.network, NETWORK_LEN_MAX)
            .map_err(|why| invalid(format!("the network's name {why}")))?;
        check_name(&self.container_id, CONTAINER_ID_LEN_MAX)
            .map_err(|why| invalid(format!("the container id {why}")))?;
        check_ifname(&self.ifname)
    }
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
        /// A certain address.
        address: Option<Ipv6Addr>,
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
        addresses: Vec<Ipv6Addr>,
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
    /// The attachment that a request is about, if it is about one.
    pub fn attachment(&self) -> Option<&Attachment> {
        match self {
            Self::Add { attachment, .. }
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
}
