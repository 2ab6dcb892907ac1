//! The oracle for tests: kube-proxy's decision for the first packet of a connection, and its session affinity, over the
//! tables of [`dormouse_agent_services`].
//!
//! The recorded decisions of the real kube-proxy prove it; the maps and programs of the data path are compared with it.

#![forbid(unsafe_code)]

pub mod affinity;
pub mod decide;

pub use affinity::Affinities;
pub use decide::{Decision, Fate, Packet, Translation, decide};
