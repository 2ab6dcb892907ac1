//! Events: everything that the controller reacts to.

use std::sync::Arc;

use dormouse_cluster::{App, Change, Key};
use dormouse_fleet::Boottime;
use dormouse_fleet::root::Event as FleetEvent;

/// One app's load in the activators during the last second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ActivatorLoad {
    /// The app's VIP index.
    pub vip: u32,
    /// Average number of concurrent requests, parked ones included.
    pub concurrency: f64,
    /// Number of requests that arrived.
    pub requests: f64,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The cluster changed.
    Changes(Vec<(u64, Change)>),
    /// A request is parked for an app without a ready pod.
    Demand {
        /// The app's VIP index.
        vip: u32,
        /// Time of parking.
        at: Boottime,
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
    /// An event of a node.
    Fleet(FleetEvent),
    /// A slice of the second has passed.
    Slice {
        /// The slice, below [`SLICES`](crate::apps::SLICES).
        slice: usize,
        /// The load of the second before, of the apps in the slice.
        loads: Vec<ActivatorLoad>,
    },
    /// The first response after a wake began.
    FirstByte {
        /// The app's VIP index.
        vip: u32,
        /// Time of its first byte.
        at: Boottime,
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
        /// The store's revision of the write; none: it failed.
        version: Option<u64>,
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
    /// The write of a pod's status has ended, successfully or not.
    StatusWritten {
        /// The pod.
        pod: Key,
    },
    /// The rates allow further waiting wakes.
    Admission,
    /// The read of a sleeping app has ended.
    AppRead {
        /// The app's VIP index.
        vip: u32,
        /// The result.
        read: AppRead,
    },
    /// The time for nodes to reconnect after a start of control is over.
    NodesOverdue,
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
