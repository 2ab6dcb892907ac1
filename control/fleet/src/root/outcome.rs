//! What the root answers: events for its owner, the next message of a stream, and whether a change has settled.

use super::FOLLOWS_MAX;
#[cfg(doc)]
use super::Root;
use crate::clock::Boottime;
use crate::proto::{Count, Down, NodeStatus, PodStatus};

/// What the root learns from the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A stream of this node was opened (again).
    NodeUp {
        /// The node's name.
        node: String,
        /// What it says of itself.
        status: NodeStatus,
        /// Changes when the machine restarts.
        boot_id: String,
    },
    /// The node has no stream and its lease is over: none of its packets meets a pod by an app's entry.
    NodeDown {
        /// The node's name.
        node: String,
    },
    /// The first packet to a sleeping VIP.
    Woke {
        /// The node that saw it.
        node: String,
        /// VIP index.
        vip: u32,
        /// When, on the root's clock.
        at: Boottime,
    },
    /// A pod's state changed; stages are on the root's clock.
    Pod {
        /// The node that runs it.
        node: String,
        /// The pod's state.
        status: PodStatus,
    },
    /// What the data plane of a node counted.
    Counts {
        /// The node that counted.
        node: String,
        /// One per VIP with activity.
        counts: Vec<Count>,
    },
}

/// Names one stream; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub(super) u64);

/// A stream that a node's hello opened.
#[derive(Debug)]
pub struct Opened {
    /// The new stream.
    pub session: Session,
    /// The node's older stream, which is over now: wake it, so that it notices.
    pub replaced: Option<Session>,
    /// For the owner of the root.
    pub event: Event,
}

/// What a stream shall send next.
#[derive(Debug)]
pub enum Next {
    /// This message, now.
    Send(Box<Down>),
    /// Nothing until something changes.
    Idle,
    /// Nothing ever: a newer stream of the same node took over.
    Over,
}

/// Whether a pod that `version` of a VIP's entry no longer names may go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// No node uses an older version, and none will.
    Settled,
    /// Some node still may: look again when something changes, and at this moment if there is one.
    Wait(Option<Boottime>),
}

/// A first message that names no valid node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first message lacks `hello`, or it has no node name.
    #[error("the first message must carry hello with the node's name")]
    Nameless,
    /// More than [`FOLLOWS_MAX`] VIPs.
    #[error("node {node} follows {follows} VIPs, the limit is {FOLLOWS_MAX}")]
    FollowsTooMany {
        /// The node's name.
        node: String,
        /// How many it follows.
        follows: usize,
    },
}

/// What one message from a node brought.
#[derive(Debug, Default)]
pub struct Heard {
    /// For the owner of the root.
    pub events: Vec<Event>,
    /// Something settled perhaps: ask [`Root::settling`] again.
    pub settles: bool,
    /// The stream has something to send: ask [`Root::next`] again.
    pub wakes: bool,
}
