//! The fleet stream: changes of entries and pods from control to each node, and the renewal of the node's lease on its
//! entries.
//!
//! Reading order: the messages ([`proto`], [`backend`]), the clock in their timestamps ([`clock`]), the pure cores of
//! both ends ([`root`] in [`state`], [`node`]), their gRPC server and client ([`server`], [`client`]), the logs of pods ([`logs`]), and the interface
//! for the rest of control ([`handle`]). Connections are accepted in [`incoming`], with TLS or without; [`join`] signs the certificates of nodes
//! and roles, which are kept and renewed by [`membership`].

#![forbid(unsafe_code)]

mod access;
pub mod backend;
mod claim;
pub mod client;
pub mod clock;
mod config;
mod connection;
pub mod handle;
mod held;
pub mod http;
mod idle;
pub mod incoming;
pub mod join;
pub mod lease;
pub mod logs;
pub mod membership;
mod names;
pub mod node;
mod places;
mod refused;
mod request_body;
mod response_body;
pub mod root;
mod secured;
pub mod server;
mod settles;
mod split;
mod stale;
pub mod state;
mod transport;

pub use backend::Backend;
pub use clock::Boottime;
pub use config::ServerConfig;
pub use connection::{Access, Connection, Peer};
pub use handle::{Handle, start};
pub use idle::Requests;
pub use incoming::Incoming;
pub use logs::{LogError, LogText};
pub use membership::Membership;
pub use root::Event;
pub use server::serve;
pub use stale::Stale;
pub use transport::Callers;

/// The messages of `fleet.proto`, and their tonic service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated; fleet.proto documents each field"
)]
pub mod proto {
    tonic::include_proto!("dormouse.fleet.v1");
}

/// The messages of `join.proto`, and their tonic service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated; join.proto documents each field"
)]
pub mod join_proto {
    tonic::include_proto!("dormouse.join.v1");
}
