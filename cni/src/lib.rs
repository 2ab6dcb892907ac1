//! What the plugin and the agent say to each other, and what CNI says to both: types and checks without side effects,
//! and the two places that touch the system ([`wire`], [`pending`]).

#![forbid(unsafe_code)]

pub mod error;
pub mod invocation;
pub mod message;
pub mod pending;
pub mod result;
pub mod version;
pub mod wire;

pub use error::CniError;
pub use invocation::{Command, Invocation};
pub use message::{Attachment, Reply, Request, Wired};
pub use version::SpecVersion;

/// Where the agent listens unless the configuration's `socket` says otherwise.
pub const SOCKET_DEFAULT: &str = "/run/dormouse/agent.sock";
/// Where the node's state lives unless the configuration's `stateDir` says otherwise.
pub const STATE_DIR_DEFAULT: &str = "/var/lib/dormouse";
