//! The node's network as pods see it: a bridge, one veth each, an address of the node's prefix, all by netlink.
//!
//! Reading order: names and addresses ([`names`]), the messages to the kernel ([`messages`], pure), how links go
//! ([`removal`]), the bridges ([`bridge`]) and their ports ([`shards`], pure), refused networks ([`refusal`]), what a restart
//! has to heal ([`recovery`], pure), rate limits ([`limiter`]), the operations that CNI needs ([`network`]) with their
//! [`metrics`], and the settings that outlive the agent ([`remembered`]).

#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

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
pub mod refusal;
pub mod remembered;
mod removal;
mod shards;
mod sysctl;

pub use counters::{RequestCount, RequestCounters};
pub use dormouse_agent_datapath::PodEntry;
pub use dormouse_agent_ipam::{Ipv4Range, LeaseKey, NodePrefix, Usage};
pub use error::NetworkError;
pub use messages::POD_GROUP;
pub use network::{Network, NetworkConfig, Pod};

/// The default gateway of each pod: the bridge.
pub const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The same for IPv4: link-local, so that it takes nothing of the node's range.
pub const GATEWAY4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Where the data path keeps the node's pods. Adding a pod that is there and removing one that is not succeed.
pub trait PodTable: Send {
    /// The pod exists from now on.
    fn add(&mut self, pod: PodEntry) -> io::Result<()>;
    /// It no longer does.
    fn remove(&mut self, address: Ipv6Addr, address4: Option<Ipv4Addr>) -> io::Result<()>;
}
