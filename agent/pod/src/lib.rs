//! The pod network of a node: bridges, a veth pair per pod, addresses of the node's prefix; all by netlink.
//!
//! Reading order: names and addresses ([`names`]), the netlink messages ([`messages`], pure), the removal of links ([`removal`]),
//! the bridges ([`bridge`]) and the distribution of pods over them ([`shards`], pure), unreachable routes ([`unreachable_routes`]),
//! recovery after a restart ([`recovery`], pure), rate limits ([`limiter`]), the operations that CNI needs ([`network`]) with
//! their [`metrics`], and the settings that outlive the agent ([`saved_config`]).

#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

mod adds;
pub mod bridge;
mod counters;
pub mod error;
mod keyed_lock;
mod limiter;
mod messages;
pub mod metrics;
pub mod names;
pub mod network;
mod recovery;
mod removal;
pub mod saved_config;
mod shards;
mod sysctl;
pub mod unreachable_routes;

pub use counters::{RequestCount, RequestCounters};
pub use dormouse_agent_datapath::PodEntry;
pub use dormouse_agent_ipam::{Ipv4Range, LeaseKey, NodePrefix, Usage};
pub use error::NetworkError;
pub use messages::POD_GROUP;
pub use network::{Network, NetworkConfig, Pod};
pub use sysctl::{SYSCTLS_DEFAULT, Sysctls};

/// The default gateway of each pod: the bridge's link-local address.
pub const GATEWAY: Ipv6Addr = Ipv6Addr::from_octets(dormouse_agent_datapath::GATEWAY);
/// The IPv4 default gateway: link-local, so that it takes no address of the node's range.
pub const GATEWAY4: Ipv4Addr = Ipv4Addr::from_octets(dormouse_agent_datapath::GATEWAY4);

/// The data path's table of pods. Adding a pod again and removing an absent one succeed.
pub trait PodTable: Send {
    /// Adds a pod, or replaces its row.
    fn add(&mut self, pod: PodEntry) -> io::Result<()>;
    /// Removes a pod.
    fn remove(&mut self, address: Ipv6Addr, address4: Option<Ipv4Addr>) -> io::Result<()>;
}
