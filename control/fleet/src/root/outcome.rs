//! Results of the root: events, the next message of a stream, and the settling of a change.

use super::FOLLOWS_MAX;
#[cfg(doc)]
use super::Root;
use crate::clock::Boottime;
use crate::proto::{Count, Down, NodeStatus, PodStatus};

/// Events from the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The node opened a stream.
    NodeUp {
        /// The node's name.
        node: String,
        /// The node's own description.
        status: NodeStatus,
        /// The machine's boot id: a new one after each boot.
        boot_id: String,
    },
    /// The node has no stream and its lease has expired: no app's entry on it selects a pod any more.
    NodeDown {
        /// The node's name.
        node: String,
    },
    /// The first packet to a sleeping VIP.
    Woke {
        /// The node where the packet was seen.
        node: String,
        /// VIP index.
        vip: u32,
        /// Time of the packet, on the root's clock.
        at: Boottime,
        /// Destination port of the packet; 0 with protocol 0: not known.
        port: u32,
        /// IP protocol number of the packet.
        protocol: u32,
    },
    /// A node follows these VIPs, and the root has no entry of them; at most [`WANTED_MAX`](super::WANTED_MAX). Each is
    /// answered by a publication, or by the answer that there is no such VIP. Until then the node gets no grant if its
    /// maps hold an entry of the VIP.
    Wanted {
        /// VIP indexes.
        vips: Vec<u32>,
    },
    /// No node uses, or can use later, an older version of a VIP's entry.
    Settled {
        /// VIP index.
        vip: u32,
        /// The version.
        version: u64,
    },
    /// A pod's status changed; its stages are on the root's clock.
    Pod {
        /// The node of the pod.
        node: String,
        /// The new status.
        status: PodStatus,
    },
    /// Counters of a node's data plane.
    Counts {
        /// The node's name.
        node: String,
        /// One per VIP with activity.
        counts: Vec<Count>,
    },
}

/// The identifier of one stream; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub(crate) u64);

/// A stream opened by a node's hello.
#[derive(Debug)]
pub struct Opened {
    /// The new stream.
    pub session: Session,
    /// The node's previous stream, now closed: its task must be woken to end.
    pub replaced: Option<Session>,
    /// The event of the node's connection.
    pub event: Event,
}

/// The next message of a stream.
#[derive(Debug)]
pub enum Next {
    /// Send this message.
    Send(Box<Down>),
    /// Send nothing until something changes.
    Idle,
    /// Send nothing until something changes, or until this time.
    Later(Boottime),
    /// End the stream: a newer one of the same node has replaced it.
    Closed,
}

/// Whether a pod may be removed that `version` of a VIP's entry no longer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// No node uses an older version, and none will.
    Settled,
    /// Some node may still use one: check again after a change, and at this time if there is one.
    Wait(Option<Boottime>),
}

/// A stream's first message is invalid.
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
        /// The number of VIPs in its hello.
        follows: usize,
    },
}

/// The effects of one message from a node.
#[derive(Debug, Default)]
pub struct Received {
    /// Events that the message carried.
    pub events: Vec<Event>,
    /// VIPs of which a change may have settled: call [`Root::settling`] again.
    pub settles: Vec<u32>,
    /// The stream may have a message to send: call [`Root::next`] again.
    pub wakes: bool,
}
