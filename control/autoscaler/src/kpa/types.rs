//! The inputs and the outcome of a reconciliation.

use crate::decider::Status;

/// Status of the condition `Active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// True: the app has the pods it needs.
    Active,
    /// False: the app has no traffic, or its activation timed out.
    Inactive,
    /// Unknown: the app waits for pods.
    Activating,
}

/// Reason of the condition `Active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The app is active, or new.
    None,
    /// Requests wait for pods.
    Queued,
    /// There were no requests.
    NoTraffic,
    /// The pods did not become ready in time.
    TimedOut,
}

/// Knative's `ProxyMode`/`ServeMode` of a ServerlessService.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The activator is in the path.
    Proxy,
    /// Requests go directly to the pods.
    Serve,
}

/// Result of the probe for an activator in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// There was no probe.
    NotNeeded,
    /// An activator is in the path.
    Passed,
    /// No activator is in the path.
    Failed,
}

/// The inputs of one reconciliation.
#[derive(Debug, Clone, Copy)]
pub struct Inputs {
    /// Current time, in the caller's milliseconds.
    pub now_ms: i64,
    /// The decider's status; `None` while the app's network is not programmed yet.
    pub status: Option<Status>,
    /// Number of ready pods.
    pub ready: i32,
    /// Whether an activator is in the path on every node.
    pub activator_in_path: bool,
}

/// The outcome of one reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Desired scale; -1: unknown.
    pub desired: i32,
    /// Whether to set the number of pods to `desired`.
    pub applied: bool,
    /// The mode to set.
    pub mode: Mode,
    /// Number of activators of the app.
    pub activators: i32,
    /// Longest delay until the next reconciliation, milliseconds.
    pub requeue_ms: Option<i64>,
    /// Result of the probe for an activator in the path.
    pub probe: Probe,
}
