//! The activator: an HTTP proxy that parks requests of sleeping apps, demands a pod, and releases them in order.
//!
//! Packets to a sleeping app's VIP are DNATed to an address inside the *acting prefix* whose low 32 bits are the VIP's
//! index. [`run`] accepts there; the local address of a connection identifies the app. A request for an app without a
//! free slot is parked with its body unread, and the first one for an app without a pod raises a [`Report`]. An app has
//! `ready pods × container concurrency` slots. A slot is freed when the response's body has ended or the client has
//! closed the connection.
//!
//! The activator holds the routes of awake apps, which control pushes over the [`link`]. Of any other VIP it asks control
//! when a request dials it; the request is parked until the answer, and the app is forgotten when nothing uses it any
//! more.
//!
//! Pure: [`park`] (the queue), [`breaker`] (queue and slots), [`demand`] (what requests wait for), [`load`] (average concurrency),
//! [`split`] (the target of a request), and both ends of the link. Each app has its own lock,
//! never held across an await, so that a stuck app delays no other.
#![forbid(unsafe_code)]

mod config;
mod handle;
mod report;
mod run;

mod accept;
mod ports;
mod shared;

mod client_stream;
mod connection;
mod cutoff;

mod exchange;
mod footprint;
mod host;
mod lookup;
mod open_bytes;
mod refusal;
pub mod split;

mod answers;
mod app;
pub mod breaker;
pub mod demand;
pub mod park;

pub mod load;
mod metrics;

pub mod link;

pub use config::{Config, Problem, Route, WAKE_TIMEOUT};
pub use handle::{Handle, new};
pub use report::{Fault, FaultKind, Report, Stat, Unanswered};
pub use run::run;
pub use split::{Split, SplitTarget, Sticky};
