//! Services and EndpointSlices on one node: VIPs, their backends, and the decision for a packet, with kube-proxy's semantics.
//! Pure.
//!
//! There are no sockets, kernel maps or clocks here: the input is objects and times, the output is tables and changes.
//! The recorded decisions of the real kube-proxy are the oracle (`tests/kube_proxy_vectors`).
//!
//! Reading order: the basic types ([`address`], [`key`], [`node`]), parsed objects ([`service`], [`mod@slice`]), service
//! ports and their backends ([`port`], [`backend`]), the table by VIP ([`table`]), the state of all objects ([`services`]),
//! and queries ([`decide`], [`affinity`], [`flow`]).

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

pub mod affinity;
pub mod decide;
pub mod flow;

pub use address::{Family, Prefix};
pub use affinity::Affinities;
pub use backend::{Backend, Backends};
pub use change::{Changes, Event, PortChange};
pub use decide::{Decision, Fate, Packet, Translation};
pub use flow::Flow;
pub use key::{PortId, Protocol, ServiceKey};
pub use node::{Node, NodeAddresses, NodePortAddresses};
pub use port::{Answer, ServicePort, Set, Source};
pub use problem::Problem;
pub use service::{Policy, Strictness};
pub use services::Services;
pub use table::Frontend;
pub use vip::{NodePort, Vip};
