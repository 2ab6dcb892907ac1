//! What Services and EndpointSlices mean on one node: which addresses are served, by which backends, and what becomes
//! of a packet. Kubernetes' semantics as kube-proxy has them, pure.
//!
//! Nothing here knows a socket, a map of the kernel or a clock: objects and times come in, tables and changes come out.
//! The recorded decisions of the real kube-proxy are the oracle (`tests/kube_proxy_vectors`).
//!
//! Reading order: the words ([`address`], [`key`], [`node`]), what is read from objects ([`service`], [`mod@slice`]), what
//! a service port offers ([`port`], [`backend`]), where it is found ([`table`]), the state that follows events
//! ([`services`]), and what is asked of it ([`decide`], [`affinity`], [`flow`]).

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
