//! Services and EndpointSlices on one node: VIPs and their backends, with kube-proxy's semantics. Pure.
//!
//! There are no sockets, kernel maps or clocks here: the input is objects and times, the output is tables and changes.
//! Tests compare it with the recorded decisions of the real kube-proxy (`tests/kube_proxy_vectors`); `oracle` computes the
//! decision for a packet from these tables, for tests only.
//!
//! Reading order: the basic types ([`address`], [`key`], [`node`]), parsed objects ([`service`], [`mod@slice`]), service
//! ports and their backends ([`port`], [`backend`]), the table by VIP ([`table`]), the state of all objects ([`services`]),
//! and stale UDP flows ([`flow`]).

#![forbid(unsafe_code)]

pub mod address;
pub mod few;
pub mod key;
pub mod node;
pub mod vip;

pub mod problem;
pub mod service;
pub mod slice;

pub mod backend;
pub mod port;

pub mod table;

pub mod change;
pub mod services;

pub mod flow;

pub use address::{Family, Prefix};
pub use backend::{Backend, Backends};
pub use change::{Changes, Event, PortChange};
pub use flow::Flow;
pub use key::{PortId, Protocol, ServiceKey};
pub use node::{Node, NodeAddresses, NodePortAddresses};
pub use port::{Answer, ServicePort, Set, Source};
pub use problem::Problem;
pub use service::{Policy, Strictness};
pub use services::Services;
pub use table::Frontend;
pub use vip::{NodePort, Vip};
