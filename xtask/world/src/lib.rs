//! A small cluster on one kernel: a switch, nodes, a client and a control host as network namespaces.
//!
//! The demo, the benches and the end-to-end tests run real programs in it. Whatever way a run ends, [`World`]
//! leaves nothing behind: dropping it removes processes, cgroups, pins, namespaces and folders, and the next
//! run first clears what a killed one could not.
#![forbid(unsafe_code)]

mod agent;
mod cgroup;
mod error;
mod host;
mod mounts;
mod netns;
mod packet_socket;
mod plan;
mod process;
mod removal;
mod world;

pub use cgroup::Cgroup;
pub use error::WorldError;
pub use host::Host;
pub use mounts::cgroups;
pub use netns::{Netns, enter};
pub use packet_socket::PacketSocket;
pub use plan::{
    ACTING_PREFIX, CLIENT, CONTROL, LINK_PREFIX_LEN, NODES_MAX, Spec, VIP_RANGE, VIP_RANGE_LEN,
};
pub use process::{Process, Program};
pub use world::World;
