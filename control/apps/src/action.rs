//! Actions: everything that the controller can do, executed by the actuator.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator::Problem;
use dormouse_cluster::app::PodFailures;
use dormouse_cluster::{App, Key, Mode, State, Sticky};
use dormouse_fleet::proto::{NodeStatus, PodSpec, PodStatus, Target};
use dormouse_fleet::{Backend, Boottime};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::progress::Progress;

/// An action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Schedule a new pod and create it, bound to its node.
    Create {
        /// The app's VIP index.
        vip: u32,
        /// The pod, without a node.
        pod: Box<Pod>,
    },
    /// Read a sleeping app from the store.
    Read {
        /// The app's VIP index.
        vip: u32,
        /// The app.
        app: Key,
    },
    /// Read a revision of an app from the store.
    ReadRevision {
        /// The app's VIP index.
        vip: u32,
        /// The revision.
        revision: Key,
    },
    /// Write an app's status, and publish its entry with the revision of that write as version.
    Publish {
        /// The app's VIP index.
        vip: u32,
        /// The app as last read: it is written without another read unless it was changed since.
        app: Arc<App>,
        /// The status to write.
        status: Status,
        /// The entry to publish; none: it has not changed.
        entry: Option<Entry>,
    },
    /// Publish an entry whose status is already stored.
    Announce {
        /// The app's VIP index.
        vip: u32,
        /// The store's revision of that status.
        version: u64,
        /// The entry.
        entry: Entry,
    },
    /// Answer the fleet that no app has a VIP.
    Absent {
        /// The VIP's index.
        vip: u32,
    },
    /// Publish that a VIP is gone.
    Withdraw {
        /// The VIP's index.
        vip: u32,
        /// The store's revision of the app's deletion.
        version: u64,
    },
    /// Wait until no node uses an older version of an entry.
    Settle {
        /// The app's VIP index.
        vip: u32,
        /// The version.
        version: u64,
    },
    /// Delete a pod that no node's entry contains any more.
    Delete {
        /// The app's VIP index.
        vip: u32,
        /// The pod.
        pod: Key,
    },
    /// Set an app's route in the activators; none: there is no such app.
    Route {
        /// The app's VIP index.
        vip: u32,
        /// The store's revision of the app's last publication.
        version: u64,
        /// The route.
        route: Option<Route>,
    },
    /// Set the ports on which activators listen: those of all apps.
    Listen {
        /// The ports.
        ports: BTreeSet<u16>,
    },
    /// Run or stop a pod on a node.
    Run {
        /// The node.
        node: String,
        /// The pod.
        spec: PodSpec,
    },
    /// Send a node the complete list of its pods.
    SyncPods {
        /// The node.
        node: String,
        /// The pods.
        specs: Vec<PodSpec>,
    },
    /// Write a pod's status as reported by its node.
    PodStatus {
        /// The pod as last read: it is written without another read unless it was changed since.
        pod: Arc<Pod>,
        /// The node of the pod.
        node: String,
        /// The reported status.
        status: Box<PodStatus>,
    },
    /// Write a connected node's object.
    NodeUp {
        /// The node.
        node: String,
        /// The node's own description.
        status: Box<NodeStatus>,
        /// The machine's boot id: a new one after each boot.
        boot_id: String,
    },
    /// Write that a node is lost.
    NodeDown {
        /// The node.
        node: String,
    },
    /// Record a Kubernetes Event.
    RecordEvent {
        /// The object that it is about.
        about: Box<ObjectReference>,
        /// CamelCase.
        reason: Cow<'static, str>,
        /// The event's text.
        message: String,
    },
}

/// An app's status before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Asleep, waking or awake.
    pub state: State,
    /// Proxy: the VIP is DNATed to the activator. Serve: to pods.
    pub mode: Mode,
    /// Number of ready pods.
    pub ready: u32,
    /// Number of wanted pods.
    pub wanted: u32,
    /// Time of the last wake.
    pub last_wake: Option<Boottime>,
    /// The last failure, while pods are missing because of it.
    pub failure: Option<Failure>,
    /// The generation of the app that it is about.
    pub generation: Option<i64>,
    /// The hash of the app's template.
    pub template_hash: String,
    /// The newest revision of which a pod was ready.
    pub ready_revision: Option<u32>,
    /// Its pods that failed one after another, while some are wanted.
    pub pod_failures: Option<PodFailures>,
    /// The rollout of the app's template.
    pub progress: Progress,
}

/// Why a pod failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In CamelCase, as Kubernetes' reasons.
    pub reason: String,
    /// Details.
    pub message: String,
}

impl Failure {
    /// A failure with its reason in CamelCase.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

impl Failure {
    /// The failure in one line, without the app's output: for clients of the app.
    pub(crate) fn brief(&self) -> String {
        let message = self.message.lines().next().unwrap_or_default();
        format!("{}: {message}", self.reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// An entry before it has a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Proxy: the VIP is DNATed to the activator. Serve: to the backends.
    pub mode: Mode,
    /// The pods, in the order of their addresses; none in proxy mode.
    pub backends: Vec<Backend>,
    /// Whether the first packet raises a wake event.
    pub asleep: bool,
    /// The VIP's port.
    pub port: u16,
    /// The VIPs over which new connections are spread; none: all go to the pods.
    pub split: Vec<Target>,
    /// Whether a pod will be removed once no node uses an older version.
    pub settle: bool,
    /// Whether nodes may use the entry before a second longer: the app has no load, and none of its pods in there is lost.
    pub idle: bool,
}

/// An app's route in the activators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The app, as `namespace/name`.
    pub name: String,
    /// The namespace, where budgets are counted.
    pub tenant: String,
    /// The port on which the activators serve the app.
    pub port: u16,
    /// Limit of concurrent requests per pod; 0: none.
    pub container_concurrency: u32,
    /// Limit of the duration of a request.
    pub timeout: Duration,
    /// The VIP is in serve mode: clients connected to an activator are asked to reconnect.
    pub serving: bool,
    /// The ready pods.
    pub backends: Vec<SocketAddrV6>,
    /// Longest time for which a request is parked while there is no ready pod.
    pub wake_timeout: Duration,
    /// Why there is no ready pod, if a reason is known.
    pub problem: Option<Problem>,
    /// The VIPs over which requests are spread; none: all go to the ready pods.
    pub split: Vec<Target>,
    /// What requests have in common that go to the same one of them.
    pub sticky: Option<Sticky>,
}
