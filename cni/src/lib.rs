//! The CNI plugin's library: its input and results, and its messages to the agent. Everything is pure but the two
//! modules that reach the system: [`wire`] (the socket) and [`pending`] (files).
//!
//! The modules depend on each other in one direction: render → invocation → message, result → names, object → error →
//! version.
//!
//! The plugin's own keys of a network configuration, all optional. Where the plugin is another plugin's `ipam.type`,
//! they stand below `ipam`:
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `socket` | the agent's Unix socket | [`SOCKET_DEFAULT`] |
//! | `stateDir` | the node's state folder | [`STATE_DIR_DEFAULT`] |
//! | `fallback` | `"offline"`: while the agent is down, ADD, CHECK and STATUS are served by `dormouse-agent offline` | `"none"` |
//! | `agent` | path of that program | beside the plugin, else in `PATH` |
//!
//! Capabilities: `ips`, `mac`, `bandwidth`, `portMappings`. As an `ipam.type` the plugin reserves an address of the node's prefix and
//! names its first host address as the gateway, which the other plugin must assign to its own bridge.

#![forbid(unsafe_code)]

pub mod error;
pub mod invocation;
pub mod message;
pub mod names;
pub mod object;
pub mod pending;
pub mod render;
pub mod result;
pub mod version;
pub mod wire;

pub use error::CniError;
pub use invocation::{Command, Invocation};
pub use message::{Attachment, Reply, Request, Wanted, Wired};
pub use version::SpecVersion;

/// The agent's Unix socket where the configuration has no `socket`.
pub const SOCKET_DEFAULT: &str = "/run/dormouse/agent.sock";
/// The node's state folder where the configuration has no `stateDir`.
pub const STATE_DIR_DEFAULT: &str = "/var/lib/dormouse";
