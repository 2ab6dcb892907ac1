//! What a reconciliation finds and answers.

use crate::decider::Status;

/// Whether an app takes traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It has the pods it needs.
    Active,
    /// It has no traffic.
    Inactive,
    /// It waits for pods.
    Activating,
}

/// Why an app is not active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is active, or new.
    None,
    /// Requests wait for pods.
    Queued,
    /// Nothing was asked of it.
    NoTraffic,
    /// Its pods did not become ready in time.
    TimedOut,
}

/// Who is in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Activators.
    Proxy,
    /// Nobody: requests go straight to pods.
    Serve,
}

/// What became of asking the app's name who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It was not asked.
    Unneeded,
    /// An activator answered.
    Met,
    /// Something else answered.
    Missed,
}

/// What one reconciliation finds.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The caller's milliseconds.
    pub now_ms: i64,
    /// The last decision; none where the network is not made yet.
    pub status: Option<Status>,
    /// Pods that are ready.
    pub ready: i32,
    /// Whether the path leads to an activator everywhere.
    pub activator_met: bool,
}

/// What one reconciliation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The scale wanted; -1: not known.
    pub want: i32,
    /// Whether the number of pods is to become `want` now.
    pub applied: bool,
    /// Who shall be in the path.
    pub mode: Mode,
    /// The number of activators behind the app.
    pub activators: i32,
    /// When to be called again at the latest, milliseconds from now.
    pub requeue_ms: Option<i64>,
    /// Whether the path was asked for, and with which answer.
    pub probe: Probe,
}
