//! Where a pod runs: kube-scheduler's fit and least-allocated over columns of nodes.
//!
//! Reading order: what a pod asks for ([`request`]) and what nodes have ([`nodes`]) are pure, and so is what is known
//! of the cluster ([`state`]); [`server`] is the shell that follows the store, answers gRPC and binds.
#![forbid(unsafe_code)]

pub mod quantity;

pub mod request;

pub mod nodes;

pub mod state;

pub mod random;

pub mod server;

mod binder;

pub use proto::scheduler_client::SchedulerClient;
pub use server::serve;

/// The messages of `scheduler.proto`, and their tonic service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::allow_attributes,
    reason = "generated; scheduler.proto documents each field"
)]
pub mod proto {
    tonic::include_proto!("dormouse.scheduler.v1");
}
