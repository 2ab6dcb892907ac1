//! Stands in for apps that sleep: parks their requests, asks for a pod, and lets them out in order.
//!
//! A sleeping app's VIP leads to an address inside the *acting prefix* whose low 32 bits are the VIP's
//! index; [`run`] accepts there and knows the app by the local address that was dialled. A request for an
//! app without a free slot is parked with its body unread; the first one without any pod raises a
//! [`Demand`]. Slots are `ready pods × container concurrency`, and a slot is given back when the
//! response's body has ended or the client has left.
//!
//! Pure: [`park`] (the queue), [`breaker`] (queue and slots), [`load`] (average concurrency).
//! Thin: the rest. One lock per app, never held across an await: a stuck app delays nobody else.
#![forbid(unsafe_code)]

mod config;
mod handle;
mod run;

mod listen;

mod connection;
mod peer;

mod exchange;
mod refusal;

mod app;
pub mod breaker;
pub mod park;

pub mod load;
mod metrics;

pub use config::{Config, Route};
pub use handle::{Demand, Handle, Stat, new};
pub use run::run;
