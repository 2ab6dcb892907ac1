//! The fleet stream: control tells each node what changed, and renews the node's lease on what it was told.
//!
//! Reading order: the messages ([`proto`], [`backend`]), the clock they share ([`clock`]), the pure cores of both ends
//! ([`root`], [`node`]), the thin shells that carry them over gRPC ([`server`], [`client`]),
//! and what the rest of control holds ([`handle`]).

#![forbid(unsafe_code)]

pub mod backend;
pub mod client;
pub mod clock;
pub mod handle;
pub mod lease;
pub mod node;
pub mod root;
pub mod server;

pub use backend::Backend;
pub use clock::Boottime;
pub use handle::{Handle, ServerConfig, start};
pub use root::Event;
pub use server::serve;

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
