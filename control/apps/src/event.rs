//! Events: everything that the controller reacts to. What arrives is an [`Input`]; the dispatcher passes on what concerns
//! apps as [`ShardEvent`]s.

use std::net::SocketAddrV6;
use std::sync::Arc;

use dormouse_activator::link::Load;
use dormouse_activator::{Fault, Unanswered};
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{App, Key, Revision, StoredApp};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::{Count, Stages};
use dormouse_fleet::root::Event as FleetEvent;
use k8s_openapi::api::core::v1::Pod;

/// What arrives at the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The cluster changed.
    Changes(Batch),
    /// An event of a node.
    Fleet(FleetEvent),
    /// The load of about a second in one activator.
    Load(Vec<Load>),
    /// The write of a pod's status has ended, successfully or not.
    StatusWritten {
        /// The pod.
        pod: Key,
    },
    /// The write of a node has ended, successfully or not.
    NodeWritten {
        /// The node.
        node: String,
    },
    /// The time for nodes to reconnect after a start of control is over.
    NodesOverdue,
    /// An event of one app.
    App(Event),
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        Self::App(event)
    }
}

/// An event that concerns the apps of one shard.
#[derive(Debug, Clone, PartialEq)]
pub enum ShardEvent {
    /// Changes of the cluster, with the store's revision of each.
    Changes(Vec<(u64, Change)>),
    /// Nodes follow VIPs of which the fleet has no entry.
    Wanted(Vec<u32>),
    /// One node's counts of connections directly to pods.
    Counts(Vec<Count>),
    /// The load of about a second in one activator.
    Load(Vec<Load>),
    /// A node is lost, and with it these pods; each with the VIP of its app.
    PodsLost(Vec<(u32, Key)>),
    /// A slice of the second has passed; below [`SLICES`](crate::apps::SLICES).
    Slice(usize),
    /// The rates allow further waiting wakes.
    Admission,
    /// An event of one app.
    App(Event),
}

/// A change of the cluster as apps see it.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An app, with its VIP.
    App(Key, u32, Box<StoredApp>),
    /// An app was deleted. It may be one of another shard.
    Deleted(Key),
    /// A pod that the controller has created.
    Pod(PodChange),
    /// A list of all objects begins.
    Listing,
    /// The list is complete: apps that were not in it no longer exist.
    Listed,
}

/// A change of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodChange {
    /// The VIP of its app.
    pub vip: u32,
    /// Its app.
    pub owner: Key,
    /// The pod.
    pub key: Key,
    /// Its object; none: it was deleted.
    pub pod: Option<Arc<Pod>>,
    /// It is bound to a node that was lost and has not reconnected.
    pub on_lost_node: bool,
}

/// An event of one app.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A request is parked for an app without a ready pod.
    Demand {
        /// The app's VIP index.
        vip: u32,
        /// Time of parking.
        at: Boottime,
    },
    /// The cluster's settings have changed, by which a sleeping app has pods without load.
    Start {
        /// The app's VIP index.
        vip: u32,
    },
    /// A request waits in an activator for the route of a VIP.
    Want {
        /// The VIP's index.
        vip: u32,
        /// The port that was dialled: a demand, if it is the app's own.
        port: u16,
        /// Time of parking.
        at: Boottime,
    },
    /// The kernel of a node reported a first packet.
    Woke {
        /// The VIP's index.
        vip: u32,
        /// The node.
        node: String,
        /// Time of the packet.
        at: Boottime,
        /// The destination port; 0 if `protocol` is.
        port: u32,
        /// The IP protocol; 0: the kernel found the packet to be for the app.
        protocol: u32,
    },
    /// The first response after a wake began.
    FirstByte {
        /// The app's VIP index.
        vip: u32,
        /// Time of its first byte.
        at: Boottime,
    },
    /// The last request of a wake has ended without a response.
    Unanswered {
        /// The app's VIP index.
        vip: u32,
        /// Time of its end.
        at: Boottime,
        /// Why it ended.
        how: Unanswered,
    },
    /// A ready pod has failed a request, or has answered one after that.
    Answer {
        /// The app's VIP index.
        vip: u32,
        /// The pod's socket.
        pod: SocketAddrV6,
        /// Time of the end of the request.
        at: Boottime,
        /// How it failed; none: it has answered.
        fault: Option<Fault>,
    },
    /// A pod's start reached another stage.
    Staged {
        /// The app's VIP index.
        vip: u32,
        /// The pod's name.
        pod: String,
        /// The pod's node.
        node: String,
        /// The stages so far.
        stages: Stages,
    },
    /// The scheduler has chosen a node for a new pod, or none.
    Placed {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// The node; none: the pod is created without a node.
        node: Option<String>,
        /// Time of the decision.
        at: Boottime,
    },
    /// The creation of a pod has ended.
    Created {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// Whether it succeeded.
        written: bool,
    },
    /// The write of a status, with the publication of its entry, has ended.
    Published {
        /// The app's VIP index.
        vip: u32,
        /// The app as it was written, with the store's revision of the write; none: it failed.
        app: Option<Arc<App>>,
    },
    /// No node uses an older version of an entry.
    Settled {
        /// The app's VIP index.
        vip: u32,
        /// The version.
        version: u64,
    },
    /// The deletion of a pod has ended.
    Deleted {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// Whether the pod no longer exists.
        gone: bool,
    },
    /// The read of a sleeping app has ended.
    AppRead {
        /// The app's VIP index.
        vip: u32,
        /// The result.
        read: AppRead,
    },
    /// The read of a revision has ended.
    RevisionRead {
        /// The app's VIP index.
        vip: u32,
        /// The result.
        read: RevisionRead,
    },
}

impl Event {
    /// The VIP of its app.
    pub fn vip(&self) -> u32 {
        match self {
            Self::Demand { vip, .. }
            | Self::Start { vip }
            | Self::Want { vip, .. }
            | Self::Woke { vip, .. }
            | Self::FirstByte { vip, .. }
            | Self::Unanswered { vip, .. }
            | Self::Answer { vip, .. }
            | Self::Staged { vip, .. }
            | Self::Placed { vip, .. }
            | Self::Created { vip, .. }
            | Self::Published { vip, .. }
            | Self::Settled { vip, .. }
            | Self::Deleted { vip, .. }
            | Self::AppRead { vip, .. }
            | Self::RevisionRead { vip, .. } => *vip,
        }
    }
}

/// The result of reading a sleeping app from the store.
#[derive(Debug, Clone, PartialEq)]
pub enum AppRead {
    /// The app.
    Found(Arc<App>),
    /// The app does not exist.
    Absent,
    /// The store did not respond, or the app could not be decoded.
    Failed,
}

/// The result of reading a revision of an app from the store.
#[derive(Debug, Clone, PartialEq)]
pub enum RevisionRead {
    /// The revision.
    Found(Box<Revision>),
    /// It does not exist.
    Absent,
    /// The store did not respond, or the revision could not be decoded.
    Failed,
}
