//! The node's network as pods see it: a bridge, one veth each, an address of the node's prefix, all by netlink.
//!
//! Reading order: what names what ([`names`]), the messages to the kernel ([`messages`], pure) and how they are sent
//! ([`netlink`]) by many threads together ([`engine`]), how links go ([`removal`]), namespaces ([`netns`]), the bridges
//! ([`bridge`]) and who is on which ([`shards`], pure), what is refused ([`refusal`], by [`routes`]), what a restart has to
//! heal ([`recovery`], pure), what the kernel tells meanwhile ([`monitor`], [`unheard`]), what no pod can send past
//! ([`limiter`]), and the operations that CNI needs ([`network`]).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

pub mod bridge;
mod busy;
mod counters;
mod engine;
pub mod error;
mod limiter;
pub(crate) mod messages;
pub mod monitor;
pub mod names;
pub(crate) mod netlink;
pub mod netns;
pub mod network;
mod recovery;
pub(crate) mod refusal;
mod removal;
pub(crate) mod routes;
mod shards;
mod sysctl;
pub(crate) mod unheard;

pub use crate::datapath::PodEntry;
pub use counters::{RequestCount, RequestCounters};
pub use dormouse_agent_ipam::{Ipv4Range, LeaseKey, NodePrefix, Usage};
pub use error::NetworkError;
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
