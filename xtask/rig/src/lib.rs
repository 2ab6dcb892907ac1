//! The test rig: what tests with real namespaces, programs and packets are written in.
//!
//! | word | meaning |
//! |---|---|
//! | world | a small cluster on one kernel, of [`dormouse_world`]: a switch, nodes, a client, a control host |
//! | host | a network namespace with an address, a cgroup and folders; a node is one |
//! | [`Netns`] | one network namespace, and the commands that are run in it |
//! | [`Node`] | a host alone: the test thread's own network namespace, with an uplink that ends in nothing |
//! | [`Site`] | a node's namespace and one outside, on one link; no program runs there yet |
//! | uplink | a node's interface to the other hosts: [`UPLINK`] |
//! | pod | a network namespace on a node, wired by the CNI plugin |
//! | [`Home`] | the places that one agent is given: state, socket, pins, cgroup |
//! | [`Agent`] | a running `dormouse-agent` |
//! | [`Call`] | one execution of a CNI plugin, as a container runtime does it |
//! | [`Sockets`] | where sockets are opened: a namespace, and the cgroup whose programs apply to them |
//! | [`client`], [`server`] | both ends of a connection; a server names itself and the client's address as it sees it |
//! | [`shared`] | a fixture that is built once for all tests of a program |
//! | [`load`] | connections and datagrams without pause, and a count of what went wrong |
//! | [`frame`], [`tap`] | packets as bytes, and an interface on which they are sent and captured |
//!
//! All names are unique, so that tests that run in parallel do not interfere. What a test creates is removed when its value
//! is dropped; the leftovers of a killed run are removed by the next one ([`names`]).
//!
//! Nothing here depends on the agent: its binaries are started, its library is not called.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on ends with the reason"
)]

pub mod address;
pub mod agent;
pub mod binaries;
pub mod client;
pub mod frame;
pub mod load;
pub mod names;
pub mod netns;
pub mod node;
pub mod pins;
pub mod plugin;
pub mod role;
pub mod server;
pub mod shared;
pub mod site;
pub mod sockets;
pub mod tap;
pub mod tcx;
mod wait;
pub mod xdp;

pub use agent::{Agent, Home, OwnedHome};
pub use netns::{Netns, dial, ip};
pub use node::{FAR_END, Node, UPLINK, on_node};
pub use plugin::Call;
pub use site::Site;
pub use sockets::Sockets;
pub use tap::Tap;
pub use wait::{PATIENCE, wait};
