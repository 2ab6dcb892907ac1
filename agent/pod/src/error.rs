//! Errors of the pod network: adding, removing and checking pods.

use std::io;
use std::net::Ipv6Addr;

use dormouse_agent_ipam::{AllocateError, LeaseKey, LeasesError};
use dormouse_agent_netlink::RequestError;

use super::bridge::BridgeError;
use super::sysctl::SysctlError;

/// Why an operation of the pod network failed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The bridge cannot be set up.
    #[error("failed to set up the node's bridge")]
    Bridge(#[from] BridgeError),
    /// A sysctl cannot be set.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// No address is free, or the journal failed.
    #[error(transparent)]
    Leases(#[from] LeasesError),
    /// The kernel refused a request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A system call on the node failed.
    #[error("failed to {what}")]
    Machine {
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// CNI_NETNS is not a network namespace.
    #[error("CNI_NETNS is not a network namespace")]
    NoNetns(#[source] io::Error),
    /// CNI_NETNS is the agent's own namespace.
    #[error("CNI_NETNS is the node's own network namespace")]
    OwnNetns,
    /// The request has no namespace.
    #[error("the request has no network namespace")]
    MissingNetns,
    /// The pod has an interface of that name.
    #[error("interface `{0}` exists already in the pod's network namespace")]
    InterfaceExists(String),
    /// The data path refused.
    #[error("failed to {what} the pod in the data path")]
    Table {
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another request works on the attachment for too long.
    #[error("another request on {0} is still running")]
    Busy(LeaseKey),
    /// STATUS: every address is leased.
    #[error("{0}")]
    Full(AllocateError),
    /// STATUS: a bridge was deleted.
    #[error("bridge `{0}` was deleted: its pods cannot be reached; restart dormouse-agent")]
    BridgeDeleted(String),
    /// STATUS: there is no interface of the uplink's name.
    #[error(
        "there is no uplink `{0}`: other nodes cannot reach the pods; create it again, or give another with --uplink"
    )]
    NoUplink(String),
    /// STATUS: a bridge is down, or was.
    #[error(
        "bridge `{0}` is down or has lost its addresses: its pods cannot be reached; dormouse-agent sets it up within a minute"
    )]
    BridgeDown(String),
    /// STATUS: the uplink is down.
    #[error(
        "the uplink `{0}` is down: other nodes cannot reach the pods; set it up: ip link set {0} up"
    )]
    UplinkDown(String),
    /// CHECK: there is no such attachment.
    #[error("{0} has no address lease")]
    NotHeld(LeaseKey),
    /// CHECK: the attachment differs from what ADD created.
    #[error("{key} at {address} differs from what ADD created: {how}")]
    Differs {
        /// The attachment.
        key: Box<LeaseKey>,
        /// Its IPv6 address.
        address: Ipv6Addr,
        /// The difference.
        how: String,
    },
    /// GC: some attachments could not be removed.
    #[error("failed to remove {} of the attachments: {}", failures.len(), failures.join("; "))]
    Incomplete {
        /// One error each.
        failures: Vec<String>,
    },
}

impl NetworkError {
    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}
