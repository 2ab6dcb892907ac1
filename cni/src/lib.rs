//! What the plugin and the agent say to each other, and what CNI says to both: types and checks without side effects,
//! and the two places that touch the system ([`wire`], [`pending`]).
//!
//! A configuration's own keys, all optional; where the plugin is another one's `ipam.type`, they are below `ipam`:
//!
//! | key | means | default |
//! |---|---|---|
//! | `socket` | where the agent listens | [`SOCKET_DEFAULT`] |
//! | `stateDir` | the node's state folder | [`STATE_DIR_DEFAULT`] |
//! | `fallback` | `"offline"`: while the agent is down, ADD, CHECK and STATUS are served by `dormouse-agent offline` | `"none"` |
//! | `agent` | that program | beside the plugin, else in `PATH` |
//!
//! Capabilities: `ips`, `mac`, `bandwidth`. As an `ipam.type` it keeps an address of the node's prefix, whose first
//! host address the other plugin shall make the gateway of a bridge of its own.

#![forbid(unsafe_code)]

pub mod error;
pub mod invocation;
pub mod message;
pub mod object;
pub mod pending;
pub mod result;
pub mod version;
pub mod wire;

pub use error::CniError;
pub use invocation::{Command, Invocation};
pub use message::{Attachment, Reply, Request, Wanted, Wired};
pub use version::SpecVersion;

/// Where the agent listens unless the configuration's `socket` says otherwise.
pub const SOCKET_DEFAULT: &str = "/run/dormouse/agent.sock";
/// Where the node's state lives unless the configuration's `stateDir` says otherwise.
pub const STATE_DIR_DEFAULT: &str = "/var/lib/dormouse";
