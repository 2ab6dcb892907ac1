//! The scheduler: kube-scheduler's NodeResourcesFit filter and LeastAllocated score over columns of nodes.
//!
//! Reading order: the requests of a pod ([`request`]), the nodes with filters and score ([`nodes`]), and the cache and
//! queue ([`state`]) are pure; [`server`] is the shell that watches the store, serves gRPC and binds pods.
#![forbid(unsafe_code)]

pub mod request;

pub mod nodes;

pub mod state;

pub mod server;

mod binder;

mod brief;

pub use brief::place_request;
pub use proto::scheduler_client::SchedulerClient;
pub use server::{Server, serve};

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
