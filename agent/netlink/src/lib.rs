//! The kernel's routing socket: requests sent together, links, routes, classifiers, and notifications.
//!
//! Reading order: one socket and its requests ([`rtnl`]), requests of many threads in one send ([`batch`]), what is asked
//! of it ([`links`], [`routes`], [`classifier`]), and what it reports by itself ([`monitor`], with [`link_filter`]).

#![forbid(unsafe_code)]

pub mod batch;
pub mod classifier;
pub mod link_filter;
pub mod links;
pub mod monitor;
pub mod routes;
pub mod rtnl;

pub use batch::Batch;
pub use rtnl::{Request, RequestError, Rtnl, first_refusal};
