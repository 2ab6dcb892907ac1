//! An in-memory MVCC key-value store with etcd's v3 gRPC API, for etcd's clients and kube-apiserver.
//!
//! The core is pure: [`keyspace`] (revisions, key index, event history, compaction), [`txn`] (the
//! effect of requests on the keyspace), [`lease`], [`auth`] (users, roles and permissions),
//! [`alarm`], [`quota`] and [`membership`] take requests and time as arguments. [`Store`] holds them
//! behind locks, [`watch`] notifies watch streams of new events, and [`server`] is the thin shell of
//! tonic services.
#![forbid(unsafe_code)]

pub mod alarm;
pub mod auth;
mod commit;
pub mod durable;
pub mod error;
pub mod keyspace;
pub mod lease;
pub mod membership;
mod metrics;
pub mod proto;
pub mod quota;
pub mod server;
mod store;
pub mod txn;
pub mod watch;
pub mod wire;

pub use dormouse_wal::OpenError;
pub use error::Error;
pub use store::{Limits, RestoreError, Store};
