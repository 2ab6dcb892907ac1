//! What the controller decides to do: a closed list, carried out by the actuator.

use std::net::SocketAddrV6;
use std::time::Duration;

use dormouse_cluster::{Key, Mode, State};
use dormouse_fleet::proto::{NodeStatus, PodSpec, PodStatus};
use dormouse_fleet::{Backend, Boottime};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Find a node for a pod and create it there.
    Create {
        /// The app's VIP index.
        vip: u32,
        /// The pod, without a node.
        pod: Box<Pod>,
    },
    /// Write an app's status, and publish its entry with the revision of that write.
    Publish {
        /// The app's VIP index.
        vip: u32,
        /// The app.
        app: Key,
        /// What to write.
        status: Status,
        /// What to publish; none: the nodes know it.
        entry: Option<Entry>,
    },
    /// Publish an entry whose status is in the store already.
    Announce {
        /// The app's VIP index.
        vip: u32,
        /// The store's revision of that status.
        version: u64,
        /// What to publish.
        entry: Entry,
    },
    /// Publish that a VIP leads nowhere any more.
    Bury {
        /// The VIP's index.
        vip: u32,
        /// The store's revision at which the app went.
        version: u64,
    },
    /// Say when no node uses an older version of an entry.
    Settle {
        /// The app's VIP index.
        vip: u32,
        /// The version.
        version: u64,
    },
    /// Remove a pod that no node sends to any more.
    Delete {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
    },
    /// Tell the activator where an app's requests go; none: nowhere.
    Route {
        /// The app's VIP index.
        vip: u32,
        /// Where they go.
        route: Option<Route>,
    },
    /// Tell the activator whether clients may reach the pods directly.
    Serving {
        /// The app's VIP index.
        vip: u32,
        /// Whether they may.
        direct: bool,
    },
    /// Tell a node to run a pod, or to stop it.
    Run {
        /// The node.
        node: String,
        /// The pod.
        spec: PodSpec,
    },
    /// Tell a node all its pods.
    SyncPods {
        /// The node.
        node: String,
        /// The pods.
        specs: Vec<PodSpec>,
    },
    /// Write what a node said of a pod.
    PodStatus {
        /// The pod.
        pod: Key,
        /// The node that runs it.
        node: String,
        /// What it said.
        status: Box<PodStatus>,
    },
    /// Write what a node says of itself.
    NodeUp {
        /// The node.
        node: String,
        /// What it says.
        status: Box<NodeStatus>,
        /// Changes when the machine restarts.
        boot_id: String,
    },
    /// Write that a node is lost.
    NodeDown {
        /// The node.
        node: String,
    },
    /// Tell people that something happened.
    Tell {
        /// What it happened to.
        about: Box<ObjectReference>,
        /// CamelCase.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// An app's status before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether the app sleeps.
    pub state: State,
    /// Where its VIP leads.
    pub mode: Mode,
    /// Pods that answer.
    pub ready: u32,
    /// Pods that should run.
    pub wanted: u32,
    /// When the app was last woken.
    pub last_wake: Option<Boottime>,
    /// Why it is not well: a word, and for people.
    pub trouble: Option<(String, String)>,
}

/// An entry before it has a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where the VIP leads.
    pub mode: Mode,
    /// The pods, in the order of their addresses; none in proxy mode.
    pub backends: Vec<Backend>,
    /// Whether the first packet shall wake the app.
    pub asleep: bool,
    /// The VIP's port.
    pub port: u16,
    /// Whether a pod is removed once nobody uses an older version.
    pub settle: bool,
}

/// Where an app's requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The app, as `namespace/name`.
    pub name: String,
    /// The port that the activator answers on.
    pub port: u16,
    /// Requests that one pod takes at once; 0: no limit.
    pub container_concurrency: u32,
    /// How long a request may take.
    pub timeout: Duration,
    /// The pods that are ready.
    pub backends: Vec<SocketAddrV6>,
}
