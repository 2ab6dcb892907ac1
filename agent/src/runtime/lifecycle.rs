//! The lifecycle of a pod as a state machine: one function per state, and each transition is recorded.

mod clear;
mod start;

use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_fleet::Boottime;
use dormouse_fleet::proto::{PodStatus, pod_status::Phase};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::ending::Ending;
use super::probe::{self, Starting, Unready};
use super::process::{Exit, Running};
use super::record::{Process, Record, RecordError, State};
use super::spec::Spec;
use super::{RuntimeConfig, cgroup, output, sockets};
use dormouse_command::error_chain;

/// Interval at which a draining pod's connections are checked; two checks without connections end the drain.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);

/// What all pods of the node share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) config: Arc<RuntimeConfig>,
    /// The mount namespace of which each pod gets a copy.
    pub(super) root: Arc<OwnedFd>,
}

/// A pod with its record, its stop signal and its status channel.
struct Pod {
    config: Arc<RuntimeConfig>,
    root: Arc<OwnedFd>,
    record: Record,
    stop: CancellationToken,
    statuses: mpsc::Sender<PodStatus>,
    ready: bool,
    /// Why it is not ready, once its start takes long or it has failed its probe.
    unready: Option<Unready>,
}

/// The end of a pod's process.
struct End {
    exit: Exit,
    /// The pod failed its liveness probe, and was ended for it.
    dead: Option<Unready>,
}

/// Runs a pod from its recorded state to its end.
pub(super) async fn run(
    Shared { config, root }: Shared,
    record: Record,
    stop: CancellationToken,
    statuses: mpsc::Sender<PodStatus>,
) {
    let found = config.record_path(&record.uid).exists();
    let mut pod = Pod {
        config,
        root,
        record,
        stop,
        statuses,
        ready: false,
        unready: None,
    };
    let state = pod.record.state.clone();
    let mut running = match state {
        State::Starting => pod.starting(found).await,
        State::Running(process) => pod.found(process).await,
        State::Stopping(process) => {
            pod.stop.cancel();
            process.and_then(Running::adopt)
        }
        State::Ended(_) => None,
    };
    if let Some(process) = &running
        && let Some(end) = pod.running(process).await
    {
        pod.exited(end).await;
        running = None;
    }
    pod.ended().await;
    pod.stopping(running).await;
    pod.gone().await;
}

impl Pod {
    /// Continues with a process that a previous agent started.
    async fn found(&mut self, process: Process) -> Option<Running> {
        let running = Running::adopt(process);
        if running.is_none() {
            self.end(Ending::unseen()).await;
        } else {
            // A probe can take long; meanwhile the pod must not be taken for unready.
            self.ready = self.record.times.ready_ns > 0;
            self.report(Phase::Running).await;
        }
        running
    }

    /// Watches the process and its probes until the process ends, or (`None`) the pod is to stop.
    async fn running(&mut self, running: &Running) -> Option<End> {
        let Ok(spec) = Spec::parse(&self.record.pod) else {
            // Another version has started it.
            return tokio::select! {
                () = self.stop.cancelled() => None,
                exit = running.ended() => Some(End { exit, dead: None }),
            };
        };
        let address = self.record.address.unwrap_or(Ipv6Addr::LOCALHOST);
        let took = Boottime::now().since(Boottime(self.record.times.started_ns));
        let since = Instant::now()
            .checked_sub(took)
            .unwrap_or_else(Instant::now);
        let stop = self.stop.clone();
        let dead = died(&spec, address, since, running);
        let mut dead = std::pin::pin!(dead);
        loop {
            let (ready, known) = (self.ready, self.unready.clone());
            let starting = Starting {
                probe: &spec.readiness,
                address,
                since,
                known: known.as_ref(),
            };
            let unready = tokio::select! {
                () = stop.cancelled() => return None,
                exit = running.ended() => return Some(End { exit, dead: None }),
                cause = &mut dead => return Some(self.kill(running, cause, spec.grace).await),
                result = starting.ready(|| running.listeners()), if !ready => result.err(),
                unready = probe::failing(&spec.readiness, address, || running.listeners()), if ready => Some(unready),
            };
            self.ready = unready.is_none();
            self.unready = unready;
            if self.ready && self.record.times.ready_ns == 0 {
                self.record.times.ready_ns = Boottime::now().0;
                self.report(Phase::Running).await;
                self.note();
            } else {
                self.report(Phase::Running).await;
            }
        }
    }

    /// Ends a pod that has failed its liveness probe, after it was reported as not ready.
    async fn kill(&mut self, running: &Running, cause: Unready, grace: Duration) -> End {
        self.ready = false;
        self.unready = Some(cause.clone());
        self.report(Phase::Running).await;
        let exit = self.terminate(running, grace).await;
        End {
            exit,
            dead: Some(cause),
        }
    }

    /// Sends SIGTERM, and SIGKILL to all processes of the pod after the grace period.
    async fn terminate(&self, running: &Running, grace: Duration) -> Exit {
        running.terminate();
        if let Ok(exit) = tokio::time::timeout(grace, running.ended()).await {
            return exit;
        }
        warn!(pod = %self.record.name, grace_s = grace.as_secs(), "pod killed: its grace period is over");
        let _ = cgroup::kill(&self.paths().0);
        running.ended().await
    }

    /// Records that the process ended. It is not restarted: control replaces pods.
    async fn exited(&mut self, end: End) {
        let ending = if let Some(error) = self.start_error() {
            Ending::failure("StartError", error)
        } else if let Some(cause) = end.dead {
            Ending::dead(end.exit, &cause)
        } else if !matches!(end.exit, Exit::Status(_)) && cgroup::has_killed(&self.paths().0) {
            Ending::out_of_memory(end.exit)
        } else {
            let lines = output::last_lines(self.config.logs(), &self.record.uid).await;
            Ending::exited(end.exit, &lines)
        };
        let (reason, message) = (&ending.reason, &ending.message);
        info!(pod = %self.record.name, reason, message, "pod ended");
        self.end(ending).await;
    }

    async fn end(&mut self, ending: Ending) {
        let phase = ending.phase();
        self.ready = false;
        self.unready = None;
        self.record.state = State::Ended(ending);
        self.note();
        self.report(phase).await;
    }

    /// Waits until the ended pod is to be removed.
    async fn ended(&mut self) {
        if let State::Ended(ending) = &self.record.state {
            self.report(ending.phase()).await;
        }
        self.stop.cancelled().await;
    }

    /// Waits for connections to end, then stops the process, then clears the pod.
    async fn stopping(&mut self, running: Option<Running>) {
        self.ready = false;
        self.unready = None;
        self.record.state = State::Stopping(running.as_ref().map(|running| running.process));
        self.note();
        if let Some(running) = running {
            self.report(Phase::Running).await;
            let spec = Spec::parse(&self.record.pod).ok();
            let grace = spec.as_ref().map_or(Duration::ZERO, |spec| spec.grace);
            if let Some(port) = spec.and_then(|spec| spec.port) {
                let _ = tokio::time::timeout(grace, drained(&running, port)).await;
            }
            self.terminate(&running, grace).await;
        }
        self.clear().await;
    }

    /// Reports the removal. Only the log remains.
    async fn gone(&mut self) {
        self.forget_start_error();
        let path = self.config.record_path(&self.record.uid);
        if let Err(error) = std::fs::remove_file(&path) {
            warn!(path = %path.display(), %error, "failed to remove a pod's record");
        }
        info!(pod = %self.record.name, uid = %self.record.uid, "pod removed");
        self.report(Phase::Gone).await;
    }

    fn write(&self) -> Result<(), RecordError> {
        self.record
            .write(&self.config.record_path(&self.record.uid))
    }

    /// Writes the record where a failure must not stop the pod: a restarted agent then finds an older state.
    fn note(&self) {
        if let Err(error) = self.write() {
            warn!(pod = %self.record.name, error = error_chain(&error), "failed to record a pod's state");
        }
    }

    async fn report(&self, phase: Phase) {
        // A closed channel: the agent stops, and the next one reports all states again.
        let mut status = self.record.status(phase, self.ready);
        if let Some(unready) = self.unready.as_ref().filter(|_| phase == Phase::Running) {
            unready.reason.clone_into(&mut status.reason);
            status.message.clone_from(&unready.message);
        }
        let _ = self.statuses.send(status).await;
    }
}

/// Resolves when the pod has failed its liveness probe; never without one.
async fn died(spec: &Spec, address: Ipv6Addr, since: Instant, running: &Running) -> Unready {
    let Some(liveness) = &spec.liveness else {
        return std::future::pending().await;
    };
    let delay = liveness.initial_delay.saturating_sub(since.elapsed());
    tokio::time::sleep(delay).await;
    probe::failing(liveness, address, || running.listeners()).await
}

/// Resolves when two consecutive checks found no connection on the pod's port.
async fn drained(running: &Running, port: u16) {
    let mut idle = 0;
    while idle < 2 {
        idle = if sockets::has_connection(&running.tcp_table(), port) {
            0
        } else {
            idle + 1
        };
        tokio::time::sleep(DRAIN_PAUSE).await;
    }
}
