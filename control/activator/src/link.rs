//! The link between the controller and its activators: routes of awake apps down; wants, demands, load and first bytes up.
//!
//! Reading order: the messages ([`proto`]), the pure cores of both ends ([`root`], [`follower`]), the controller's
//! interface ([`Hub`], [`Event`]), and the attachment of an activator ([`attach`]), in
//! the controller's process or over gRPC.

pub mod attach;
mod client;
pub mod follower;
mod hub;
mod message;
pub mod root;
mod server;

pub use attach::Attachment;
pub use hub::{Hub, start};
pub use root::{Event, Load};
pub use server::serve;

/// The messages of `activator.proto`, and their tonic service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated; activator.proto documents each field"
)]
pub mod proto {
    tonic::include_proto!("dormouse.activator.v1");
}
