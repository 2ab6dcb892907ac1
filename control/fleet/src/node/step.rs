//! What a message from control asks of the node's shell, and what makes a stream useless.

#[cfg(doc)]
use super::Node;
use crate::clock::Boottime;
use crate::proto::{Entry, NodeConfig, PodSpec};

/// What the shell shall do with one message from control, in this order.
#[derive(Debug, Default, PartialEq)]
pub struct Step {
    /// The message's number: for [`Node::applied`] once all is in force.
    pub seq: u64,
    /// New settings of the node.
    pub config: Option<NodeConfig>,
    /// Entries to put in force.
    pub entries: Vec<Entry>,
    /// Wait after the entries until the kernel can no longer decide by what they replaced.
    pub grace: bool,
    /// The new end of the node's lease.
    pub lease_until: Option<Boottime>,
    /// Pods to run or to stop.
    pub run: Vec<PodSpec>,
    /// `run` names every pod of this node.
    pub run_complete: bool,
}

/// The stream is of no use: close it and connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Messages are numbered from 1 without a gap.
    #[error("message {got} came where {expected} was expected")]
    Gap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// A root that another one has replaced.
    #[error("control's epoch {got} is older than {known}, which this node obeys")]
    EpochOld {
        /// The highest epoch seen.
        known: u64,
        /// That of this stream.
        got: u64,
    },
}
