//! What can happen to the controller: a closed list.

use dormouse_cluster::{Change, Key};
use dormouse_fleet::Boottime;
use dormouse_fleet::root::Event as FleetEvent;

/// What the activator measured of one app since it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Proxied {
    /// The app's VIP index.
    pub vip: u32,
    /// Requests in flight on average, parked ones included.
    pub concurrency: f64,
    /// Requests begun.
    pub requests: f64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The cluster changed.
    Changes(Vec<(u64, Change)>),
    /// A request waits for a sleeping app.
    Demand {
        /// The app's VIP index.
        vip: u32,
        /// When it was parked.
        at: Boottime,
    },
    /// A node said something.
    Fleet(FleetEvent),
    /// A second has passed.
    Second(Vec<Proxied>),
    /// The first byte of the first answer after a wake went out.
    FirstByte {
        /// The app's VIP index.
        vip: u32,
        /// When.
        at: Boottime,
    },
    /// A node was chosen for a new pod, or none.
    Placed {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// The node; none: the pod is created without.
        node: Option<String>,
        /// When.
        at: Boottime,
    },
    /// A new pod was written, or not.
    Created {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// Whether it is in the store now.
        written: bool,
    },
    /// A status was written and its entry published, or not.
    Published {
        /// The app's VIP index.
        vip: u32,
        /// The store's revision of the write.
        version: Option<u64>,
    },
    /// No node uses an older version of an entry.
    Settled {
        /// The app's VIP index.
        vip: u32,
        /// The version.
        version: u64,
    },
    /// A pod was removed from the store, or not.
    Deleted {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
        /// Whether it is gone.
        gone: bool,
    },
    /// A pod's status was written, or could not be.
    StatusWritten {
        /// The pod.
        pod: Key,
    },
    /// Nodes that have not come back since control started are not waited for any longer.
    NodesOverdue,
}
