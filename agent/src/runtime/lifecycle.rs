//! The lifecycle of a pod as a state machine: one function per state, and each transition is recorded.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dormouse_agent_logs::{Meta, Output};
use dormouse_agent_sys::netns;
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::{PodStatus, pod_status::Phase};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::failure::{StartError, chain};
use super::plugin::Attachment;
use super::process::{Exit, Running};
use super::record::{Process, Record, RecordError, State};
use super::spec::{Check, Spec};
use super::{RuntimeConfig, cgroup, probe, sockets};

/// Interval at which a draining pod's connections are checked; two checks without connections end the drain.
const DRAIN_PAUSE: Duration = Duration::from_millis(50);
/// First and last pause between attempts to clear a pod.
const CLEAR_PAUSE: Duration = Duration::from_millis(200);
const CLEAR_PAUSE_LAST: Duration = Duration::from_secs(10);

/// A pod with its record, its stop signal and its status channel.
struct Pod {
    config: Arc<RuntimeConfig>,
    record: Record,
    stop: CancellationToken,
    statuses: mpsc::Sender<PodStatus>,
    ready: bool,
}

/// Runs a pod from its recorded state to its end.
pub(super) async fn run(
    config: Arc<RuntimeConfig>,
    record: Record,
    stop: CancellationToken,
    statuses: mpsc::Sender<PodStatus>,
) {
    let found = config.record_path(&record.uid).exists();
    let mut pod = Pod {
        config,
        record,
        stop,
        statuses,
        ready: false,
    };
    let state = pod.record.state.clone();
    let mut running = match state {
        State::Starting => pod.starting(found).await,
        State::Running(process) => pod.found(process).await,
        State::Stopping(process) => {
            pod.stop.cancel();
            process.and_then(Running::adopt)
        }
        State::Ended { .. } => None,
    };
    if let Some(process) = &running
        && let Some(exit) = pod.running(process).await
    {
        pod.exited(exit).await;
        running = None;
    }
    pod.ended().await;
    pod.stopping(running).await;
    pod.gone().await;
}

impl Pod {
    /// Creates everything the pod needs and starts its process.
    async fn starting(&mut self, found: bool) -> Option<Running> {
        if found {
            // Left incomplete by an agent that was killed.
            self.clear().await;
        }
        self.report(Phase::Pending).await;
        match self.start(found).await {
            Ok(running) => Some(running),
            Err(error) => {
                let message = chain(&error);
                warn!(pod = %self.record.name, reason = error.reason(), message, "pod not started");
                self.end(false, error.reason(), message).await;
                None
            }
        }
    }

    async fn start(&mut self, is_again: bool) -> Result<Running, StartError> {
        self.record.state = State::Starting;
        self.write()?;
        let spec = Spec::parse(&self.record.pod)?;
        let (cgroup, netns) = self.paths();
        let fail = |path: PathBuf| |source| StartError::Make { path, source };
        cgroup::make(&cgroup).map_err(fail(cgroup.clone()))?;
        make_netns(netns.clone())
            .await
            .map_err(fail(netns.clone()))?;
        // Before the pod is wired: the writer opens the log meanwhile, and a process that ends at once leaves its output.
        let output = self.begin_log(&spec, is_again)?;
        self.record.times.cni_begin_ns = Boottime::now().0;
        let address = self.attachment().add().await.map_err(StartError::Wire)?;
        self.record.times.cni_end_ns = Boottime::now().0;
        self.record.address = Some(address);
        let running = Running::start(&self.config, &self.record, &spec, &output)
            .map_err(StartError::Process)?;
        tokio::spawn(output.release());
        self.record.times.started_ns = Boottime::now().0;
        self.record.state = State::Running(running.process);
        self.write()?;
        let pid = running.process.pid;
        info!(pod = %self.record.name, uid = %self.record.uid, %address, pid, "pod started");
        self.report(Phase::Running).await;
        Ok(running)
    }

    fn begin_log(&self, spec: &Spec, is_again: bool) -> Result<Output, StartError> {
        let folder = self.config.logs();
        let meta = Meta {
            namespace: self.record.namespace.clone(),
            name: self.record.name.clone(),
            app: spec.app.clone(),
        };
        let begun = folder.begin(&self.record.uid, &meta, is_again);
        begun.map_err(|source| StartError::Make {
            path: folder.path().to_owned(),
            source,
        })
    }

    /// Continues with a process that a previous agent started.
    async fn found(&mut self, process: Process) -> Option<Running> {
        let running = Running::adopt(process);
        if running.is_none() {
            let message = "the process ended while no agent ran".to_owned();
            self.end(false, "ProcessGone", message).await;
        } else {
            // A probe can take long; meanwhile the pod must not be taken for unready.
            self.ready = self.record.times.ready_ns > 0;
            self.report(Phase::Running).await;
        }
        running
    }

    /// Watches the process and its readiness until the process ends, or (`None`) the pod is to stop.
    async fn running(&mut self, running: &Running) -> Option<Exit> {
        let spec = Spec::parse(&self.record.pod).ok();
        let (check, period) = spec.map_or((Check::None, Duration::from_secs(10)), |spec| {
            (spec.check, spec.check_period)
        });
        let address = self.record.address.unwrap_or(Ipv6Addr::LOCALHOST);
        let stop = self.stop.clone();
        loop {
            let ready = self.ready;
            tokio::select! {
                () = stop.cancelled() => return None,
                exit = running.ended() => return Some(exit),
                () = probe::ready(&check, address), if !ready => self.ready = true,
                () = probe::unready(&check, address, period), if ready => self.ready = false,
            }
            if self.ready && self.record.times.ready_ns == 0 {
                self.record.times.ready_ns = Boottime::now().0;
                self.report(Phase::Running).await;
                self.note();
            } else {
                self.report(Phase::Running).await;
            }
        }
    }

    /// Records that the process ended by itself. It is not restarted: control replaces pods.
    async fn exited(&mut self, exit: Exit) {
        let logs = self.config.logs();
        let (succeeded, how) = match exit {
            Exit::Status(0) => (true, "exited with status 0".to_owned()),
            Exit::Status(status) => (false, format!("exited with status {status}")),
            Exit::Signal(signal) => (false, format!("was killed by signal {signal}")),
            Exit::Unknown => (false, "ended".to_owned()),
        };
        let (dir, uid) = (logs.path().display(), &self.record.uid);
        let message = format!("the process {how}; its output is in {dir}/{uid}.*.log");
        info!(pod = %self.record.name, message, "pod ended");
        self.end(
            succeeded,
            if succeeded { "Completed" } else { "Error" },
            message,
        )
        .await;
    }

    async fn end(&mut self, succeeded: bool, reason: &str, message: String) {
        self.ready = false;
        self.record.state = State::Ended {
            succeeded,
            reason: reason.to_owned(),
            message,
        };
        self.note();
        self.report(if succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        })
        .await;
    }

    /// Waits until the ended pod is to be removed.
    async fn ended(&mut self) {
        if let State::Ended { succeeded, .. } = self.record.state {
            self.report(if succeeded {
                Phase::Succeeded
            } else {
                Phase::Failed
            })
            .await;
        }
        self.stop.cancelled().await;
    }

    /// Waits for connections to end, then stops the process, then clears the pod.
    async fn stopping(&mut self, running: Option<Running>) {
        self.ready = false;
        self.record.state = State::Stopping(running.as_ref().map(|running| running.process));
        self.note();
        if let Some(running) = running {
            self.report(Phase::Running).await;
            let spec = Spec::parse(&self.record.pod).ok();
            let grace = spec.as_ref().map_or(Duration::ZERO, |spec| spec.grace);
            if let Some(port) = spec.and_then(|spec| spec.port) {
                let _ = tokio::time::timeout(grace, drained(&running, port)).await;
            }
            running.terminate();
            if tokio::time::timeout(grace, running.ended()).await.is_err() {
                warn!(pod = %self.record.name, ?grace, "pod killed: its grace period is over");
                let _ = cgroup::kill(&self.paths().0);
                running.ended().await;
            }
        }
        self.clear().await;
    }

    /// Reports the removal. Only the log remains.
    async fn gone(&mut self) {
        let path = self.config.record_path(&self.record.uid);
        if let Err(error) = std::fs::remove_file(&path) {
            warn!(path = %path.display(), %error, "failed to remove a pod's record");
        }
        info!(pod = %self.record.name, uid = %self.record.uid, "pod removed");
        self.report(Phase::Gone).await;
    }

    /// Removes the pod's processes, wiring and namespace; repeats until it succeeds.
    async fn clear(&mut self) {
        let mut pause = CLEAR_PAUSE;
        while let Err(error) = self.try_clear().await {
            warn!(pod = %self.record.name, error = chain(&error), "failed to clear a pod; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(CLEAR_PAUSE_LAST);
        }
        self.record.address = None;
    }

    async fn try_clear(&self) -> Result<(), StartError> {
        let (cgroup, netns) = self.paths();
        let fail = |path: PathBuf| |source| StartError::Make { path, source };
        cgroup::remove(&cgroup)
            .await
            .map_err(fail(cgroup.clone()))?;
        self.attachment().del().await.map_err(StartError::Wire)?;
        netns::remove(&netns).map_err(fail(netns.clone()))
    }

    fn paths(&self) -> (PathBuf, PathBuf) {
        let uid = &self.record.uid;
        (self.config.cgroup_path(uid), self.config.netns_path(uid))
    }

    fn attachment(&self) -> Attachment<'_> {
        let Record {
            uid,
            namespace,
            name,
            cohort,
            ..
        } = &self.record;
        Attachment {
            config: &self.config,
            uid,
            namespace,
            name,
            cohort: *cohort,
        }
    }

    fn write(&self) -> Result<(), RecordError> {
        self.record
            .write(&self.config.record_path(&self.record.uid))
    }

    /// Writes the record where a failure must not stop the pod: a restarted agent then finds an older state.
    fn note(&self) {
        if let Err(error) = self.write() {
            warn!(pod = %self.record.name, error = chain(&error), "failed to record a pod's state");
        }
    }

    async fn report(&self, phase: Phase) {
        // A closed channel: the agent stops, and the next one reports all states again.
        let _ = self
            .statuses
            .send(self.record.status(phase, self.ready))
            .await;
    }
}

/// Creates the pod's namespace; the plugin brings up its loopback interface.
async fn make_netns(path: PathBuf) -> io::Result<()> {
    tokio::task::spawn_blocking(move || netns::create(&path)).await?
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
