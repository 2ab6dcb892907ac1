//! A checker of histories: operations of concurrent clients are linearizable, and watches deliver them as etcd guarantees.
//!
//! [`history`] has the operations and watches as clients recorded them. [`linearize`] searches an order of the
//! operations that a sequential store ([`model`]) explains, by the algorithm of Wing and Gong with the cache of Lowe,
//! one group of keys at a time ([`groups`]). [`revisions`] compares the revisions of all keys with the clock, and
//! [`watches`] the events with the operations. All of these are pure. [`clients`] and [`watcher`] record histories of a
//! server by its gRPC API, and [`process`] runs that server; [`wait`] and [`http`] serve the tests that do so.
#![forbid(unsafe_code)]

pub mod clients;
pub mod groups;
pub mod history;
pub mod http;
pub mod linearize;
pub mod model;
pub mod process;
pub mod revisions;
pub mod wait;
pub mod watcher;
pub mod watches;
