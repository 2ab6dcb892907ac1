//! The scheduler: kube-scheduler's decisions in a service that watches the store and binds pods.
//!
//! Reading order: decisions are those of [`dormouse_scheduler_columns::Engine`]; the queue ([`queue`]), and the state with
//! assumed pods and bindings ([`state`]) are pure; the cluster comes from a [`source`], and [`server`] is the shell that watches the store, serves gRPC, and writes what comes out.
#![forbid(unsafe_code)]

pub mod queue;

pub mod state;

pub mod source;

pub mod shards;

pub mod server;

mod brief;
mod clock;
mod extenders;
mod leader;
mod map;
mod metrics;
mod owner;
mod service;
mod webhook;
mod writer;

pub use brief::place_request;
pub use dormouse_scheduler_decide::{Configuration, Extender, Profile};
pub use extenders::ExtenderError;
pub use proto::scheduler_client::SchedulerClient;
pub use server::{Election, Server, host, serve};
pub use webhook::{CertificateError, PATH as WEBHOOK_PATH, Webhook};

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
