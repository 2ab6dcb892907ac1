//! The settings of the Service synchronization, and its errors at the start.

use std::net::SocketAddr;

use dormouse_agent_datapath::DatapathError;
use dormouse_agent_services::{Node, Strictness};
use tokio::sync::watch;

use super::Origin;
use crate::own_node::Given;
use crate::source::manifests::ManifestsError;

/// Settings of the Service synchronization.
#[derive(Debug)]
pub struct Config {
    /// Where the objects come from.
    pub origin: Origin,
    /// The node and its cluster; `addresses` is kept up to date from the interfaces.
    pub node: Node,
    /// The addresses that flags give, if the others are those of the Node object.
    pub given: Option<Given>,
    /// Which sources load balancers' addresses admit whose source ranges have no valid range.
    pub strictness: Strictness,
    /// Control also gives this node apps, whose VIPs have slots of their own.
    pub apps: bool,
    /// Address and port of the health server.
    pub health: SocketAddr,
    /// Set when all objects are known and programmed for the first time.
    pub in_force: watch::Sender<bool>,
}

/// Why Services cannot be synchronized.
#[derive(Debug, thiserror::Error)]
pub enum ServicesSyncError {
    /// The folder of manifests cannot be read or watched.
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    /// The data path refused the cluster's address ranges.
    #[error("failed to configure the data path with the cluster's ranges")]
    Datapath(#[from] DatapathError),
    /// The node's addresses cannot be read or watched.
    #[error("failed to watch the node's addresses")]
    Addresses(#[source] std::io::Error),
    /// The health server cannot listen.
    #[error("failed to listen on {address} for health; give another --health")]
    Health {
        /// The requested address and port.
        address: SocketAddr,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
}
