//! The result of one message from control: the changes to apply, or an error that ends the stream.

#[cfg(doc)]
use super::Node;
use crate::clock::Boottime;
use crate::proto::{Entry, NodeConfig, PodSpec};

/// Changes to apply, in the order of the fields.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    /// The message's sequence number, for [`Node::applied`] when everything is in force.
    pub seq: u64,
    /// The new configuration of the node.
    pub config: Option<NodeConfig>,
    /// Entries to write to the maps.
    pub entries: Vec<Entry>,
    /// Wait for a grace period after the entries: until no running program can use a replaced one.
    pub grace: bool,
    /// The new end of the node's lease, by the node's clock.
    pub lease_until: Option<Boottime>,
    /// Pods to run or to stop.
    pub run: Vec<PodSpec>,
    /// `run` lists every pod of this node: stop all others.
    pub run_complete: bool,
}

/// Errors after which the stream must be closed and opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A sequence number is missing; messages are numbered from 1.
    #[error("received message {got}, expected {expected}")]
    Gap {
        /// The next sequence number.
        expected: u64,
        /// The sequence number received.
        got: u64,
    },
    /// The root has been replaced by one with a higher epoch.
    #[error(
        "control has epoch {got}, but this node follows epoch {known}: another control has replaced it"
    )]
    EpochOld {
        /// The highest epoch received.
        known: u64,
        /// The epoch of this stream.
        got: u64,
    },
}
