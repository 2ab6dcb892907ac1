//! What the cluster learns from this node by its Node object: that pods can be scheduled to it (the condition `NetworkUnavailable`
//! and the taint `dormouse.dev/agent-not-ready`), and what an operator must know (Events).
//!
//! Reading order: the changes of the object ([`ready`], pure), Events ([`event`], pure), problems of this node ([`problem`]), and the
//! loop that joins them ([`NodeStatus`]).

mod event;
mod problem;
mod ready;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_agent_datapath::SharedDatapath;
use dormouse_fleet::client::{Backoff, jitter};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::own_node::{Described, Problem};
use crate::profile::Ndp;
use crate::readiness::Readiness;
use crate::source::kubernetes::{Write, WriteError, Writer};
use event::Limiter;

pub use problem::Local;

/// Interval at which the node looks for problems. No request is made unless one is new.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Keeps the Node object true.
pub struct NodeStatus {
    /// Name of the node.
    pub node: String,
    /// Its object, as it is now.
    pub own: watch::Receiver<Option<Arc<Node>>>,
    /// The client that writes.
    pub writer: Writer,
    /// Whether Services are in force and pods can be wired.
    pub readiness: Readiness,
    /// Whether the plugin's requests are served, and the network configuration is written.
    pub admitted: watch::Receiver<bool>,
    /// Whether container runtimes find the plugin by this agent's network configuration: the condition is another plugin's otherwise.
    pub installs: bool,
    /// The data path, whose fill is watched.
    pub datapath: SharedDatapath,
    /// What the node uses.
    pub local: Local,
}

/// The state of the loop.
struct Session {
    status: NodeStatus,
    start: Instant,
    /// The problems that were logged.
    logs: Limiter,
    /// Those of which an Event was written.
    events: Limiter,
    /// The copy of what the Node object said, while it is removed.
    removed: Option<Described>,
    backoff: Backoff,
    /// The version of the object that was changed last: the next one is waited for.
    written: Option<String>,
    /// The last failure that was logged.
    logged: Option<String>,
}

impl NodeStatus {
    /// Runs until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let session = Session {
            status: self,
            start: Instant::now(),
            logs: Limiter::default(),
            events: Limiter::default(),
            removed: None,
            backoff: Backoff::new(),
            written: None,
            logged: None,
        };
        tokio::select! {
            () = session.work() => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Whether the condition is this agent's: neither of a plugin that wires the pods, nor of a route controller whose route to
    /// them is missing.
    fn owns_condition(&self, node: &Node) -> bool {
        let awaits_route = self.local.profile.ndp == Ndp::Routed && ready::awaits_route(node);
        self.installs && self.readiness.network.is_some() && !awaits_route
    }

    /// Whether Services are in force and pods can be wired; on a node whose pods another plugin wires, the former.
    async fn is_ready(&self) -> bool {
        let is_admitted = self.readiness.network.is_none() || *self.admitted.borrow();
        is_admitted && self.readiness.check().await.is_ok()
    }
}

impl Session {
    async fn work(mut self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            let pause = match self.lift().await {
                Ok(()) => None,
                Err(error) => Some(self.failed(&error)),
            };
            let retry = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let status = &mut self.status;
            tokio::select! {
                _ = looks.tick() => self.look().await,
                Ok(()) = status.own.changed() => looks.reset_immediately(),
                Ok(()) = status.readiness.in_force.changed() => {}
                Ok(()) = status.admitted.changed() => {}
                () = retry => {}
            }
        }
    }

    /// Says that pods can be scheduled to the node, when they can.
    async fn lift(&mut self) -> Result<(), WriteError> {
        let Some(node) = self.status.own.borrow().clone() else {
            return Ok(());
        };
        let version = node.metadata.resource_version.clone();
        let is_done = version.is_some() && version == self.written;
        // With changed ranges, pods would get addresses that are not the node's any more.
        if is_done || self.status.local.is_changed(&node) || !self.status.is_ready().await {
            return Ok(());
        }
        let owns_condition = self.status.owns_condition(&node);
        let writes = ready::writes(&node, owns_condition, Timestamp::now());
        for (what, write) in &writes {
            self.send(write).await?;
            info!(node = self.status.node, what, "the Node object was changed");
            self.written.clone_from(&version);
        }
        Ok(())
    }

    /// Looks for problems of the node, and writes an Event for those that are new.
    async fn look(&mut self) {
        let node = self.status.own.borrow().clone();
        let found = problem::look(&self.status, node.as_deref(), &mut self.removed).await;
        for problem in found {
            self.report(node.as_deref(), &problem).await;
        }
    }

    async fn report(&mut self, node: Option<&Node>, problem: &Problem) {
        let now = self.start.elapsed();
        if self.logs.admits(problem, now) {
            warn!(
                reason = problem.reason,
                problem = problem.note,
                "problem of this node"
            );
            self.logs.record(problem, now);
        }
        if !self.events.admits(problem, now) {
            return;
        }
        let uid = node.and_then(|node| node.metadata.uid.as_deref());
        let write = event::write(&self.status.node, uid, problem, Timestamp::now());
        match self.send(&write).await {
            Ok(()) => self.events.record(problem, now),
            // The next look writes another one, if the problem lasts.
            Err(error) => {
                self.failed(&error);
            }
        }
    }

    async fn send(&mut self, write: &Write) -> Result<(), WriteError> {
        self.status.writer.send(write).await?;
        self.backoff = Backoff::new();
        self.logged = None;
        Ok(())
    }

    /// Logs a failure once. Returns the pause before another attempt.
    fn failed(&mut self, error: &WriteError) -> Duration {
        let text = error.to_string();
        if self.logged.as_ref() != Some(&text) {
            warn!(%error, "the Node object or an Event cannot be written");
            self.logged = Some(text);
        }
        let pause = self.backoff.next(jitter());
        match error {
            WriteError::Refused { retry_after, .. } => pause.max(retry_after.unwrap_or_default()),
            WriteError::Unreachable(_) => pause,
        }
    }
}
