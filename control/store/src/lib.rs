//! Keeps the cluster's objects in memory behind etcd's v3 gRPC API, so that etcd's clients,
//! kube-apiserver among them, can use it as they use etcd.
//!
//! The core is pure: [`keyspace`] (revisions, key index, history, compaction), [`txn`] (what a
//! request does to it) and [`lease`] take requests and time as arguments. [`Store`] puts them
//! behind one lock, [`watch`] tells streams what changed, and [`server`] is the thin shell of
//! tonic services.
#![forbid(unsafe_code)]

pub mod error;
pub mod keyspace;
pub mod lease;
mod metrics;
pub mod proto;
pub mod server;
mod store;
pub mod txn;
pub mod watch;

pub use error::Error;
pub use store::{Limits, Store};
