//! The routing socket (rtnetlink): batches of requests, links, routes, classifiers, and notifications.
//!
//! Reading order: one socket and its requests ([`rtnl`]), requests of many threads in one send ([`batch`]), the objects
//! ([`links`], [`routes`], [`classifier`], [`attached`]), and notifications ([`monitor`], with [`link_filter`]).

#![forbid(unsafe_code)]

pub mod attached;
pub mod batch;
pub mod classifier;
pub mod link_filter;
pub mod links;
pub mod monitor;
pub mod routes;
pub mod rtnl;

pub use batch::Batch;
pub use rtnl::{Request, RequestError, Rtnl, first_refusal};
