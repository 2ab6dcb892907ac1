//! Why a pod cannot be wired, unwired or checked.

use std::io;
use std::net::Ipv6Addr;

use dormouse_agent_ipam::{AllocateError, LeaseKey, LeasesError};

use super::bridge::BridgeError;
use super::sysctl::SysctlError;
use dormouse_agent_netlink::RequestError;

/// What can fail in the node's network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The node itself cannot be set up.
    #[error("failed to set up the node's bridge")]
    Bridge(#[from] BridgeError),
    /// A setting could not be made.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// No address, or no journal.
    #[error(transparent)]
    Leases(#[from] LeasesError),
    /// The kernel refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Something on this machine failed.
    #[error("failed to {what}")]
    Machine {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// What the runtime gave as namespace is none.
    #[error("CNI_NETNS is no network namespace")]
    NoNetns(#[source] io::Error),
    /// The runtime gave the agent's own namespace.
    #[error("CNI_NETNS is the node's own network namespace")]
    OwnNetns,
    /// The runtime gave no namespace.
    #[error("no network namespace came with the request")]
    MissingNetns,
    /// The interface's name is taken inside the pod.
    #[error("interface `{0}` exists already in the pod's network namespace")]
    InterfaceExists(String),
    /// The data path refused.
    #[error("failed to {what} the pod in the data path")]
    Table {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Someone else works on this attachment.
    #[error("{0} is still being worked on")]
    Busy(LeaseKey),
    /// STATUS: every address is held or rests.
    #[error("{0}")]
    Full(AllocateError),
    /// STATUS: an interface that all pods need is gone.
    #[error("interface `{0}` is gone: no pod of this node can be reached; restart dormouse-agent")]
    Cut(String),
    /// CHECK: there is no such attachment.
    #[error("{0} has no address lease")]
    NotHeld(LeaseKey),
    /// CHECK: it is not as ADD made it.
    #[error("{key} at {address} differs from what ADD made: {how}")]
    Differs {
        /// The attachment.
        key: LeaseKey,
        /// Its address.
        address: Ipv6Addr,
        /// In which way.
        how: String,
    },
    /// GC: some could not be removed.
    #[error("failed to remove {} of the attachments: {}", failures.len(), failures.join("; "))]
    Incomplete {
        /// Why, each.
        failures: Vec<String>,
    },
}

impl NetworkError {
    /// The whole chain of reasons in one line.
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
