//! The writer of the pods' logs: one process per node in a cgroup of its own, which outlives the agent as the pods do. Each agent ends
//! the writer of the one before it and starts its own; meanwhile the pods' output waits in their FIFOs.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dormouse_agent_logs::{Folder, Limits, writer};
use nix::fcntl::{Flock, FlockArg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use tracing::warn;

use super::process::{self, Running};
use super::record::Process;
use super::{RuntimeConfig, cgroup};
use crate::capabilities;

/// The file in the folder of logs that the writer locks; it contains its process.
const LOCK: &str = "writer.lock";
/// The file in the folder of logs with the writer's own messages.
const OWN_LOG: &str = "writer.stderr";
/// Bytes of that file, above which a further writer empties it.
const OWN_LOG_BYTES_MAX: u64 = 64 * 1024;
/// Pause before a writer that ended is replaced.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of the pods' logs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct LogFlags {
    /// Bytes of a pod's log; when it is longer, its oldest lines are removed
    #[arg(long, env = "DORMOUSE_LOG_BYTES_PER_POD", default_value_t = Limits::default().pod_bytes)]
    pub log_bytes_per_pod: u64,
    /// Bytes of the logs of all pods; above, logs of ended pods are removed first
    #[arg(long, env = "DORMOUSE_LOG_BYTES_PER_NODE", default_value_t = Limits::default().node_bytes)]
    pub log_bytes_per_node: u64,
    /// Hours for which the log of an ended pod is kept
    #[arg(long, env = "DORMOUSE_LOG_HOURS", default_value_t = 24)]
    pub log_hours: u32,
}

impl LogFlags {
    fn limits(self) -> Limits {
        Limits {
            pod_bytes: self.log_bytes_per_pod,
            node_bytes: self.log_bytes_per_node,
            retention: Duration::from_hours(self.log_hours.into()),
            ..Limits::default()
        }
    }

    fn arguments(self) -> [String; 3] {
        [
            format!("--log-bytes-per-pod={}", self.log_bytes_per_pod),
            format!("--log-bytes-per-node={}", self.log_bytes_per_node),
            format!("--log-hours={}", self.log_hours),
        ]
    }
}

impl Default for LogFlags {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            log_bytes_per_pod: limits.pod_bytes,
            log_bytes_per_node: limits.node_bytes,
            log_hours: 24,
        }
    }
}

/// The flags of `pod-logs`.
#[derive(Clone, Debug, clap::Args)]
pub struct PodLogs {
    /// The folder of logs
    #[arg(long)]
    pub folder: PathBuf,
    /// The writer's cgroup
    #[arg(long)]
    pub cgroup: PathBuf,
    /// The bounds.
    #[command(flatten)]
    pub flags: LogFlags,
}

/// Writes the logs of all pods until the process is killed; returns only on an error. Waits for another writer to end.
pub fn write_logs(arguments: &PodLogs) -> Result<()> {
    let procs = arguments.cgroup.join("cgroup.procs");
    fs::write(&procs, "0").with_context(|| format!("failed to join {}", procs.display()))?;
    nix::unistd::setsid().context("failed to start a session")?;
    raise_descriptor_limit();
    // The FIFOs are the pods' users'.
    let kept = CapabilitySet::DAC_OVERRIDE;
    capabilities::reduce(kept).context("failed to drop capabilities")?;
    let folder = Folder::new(arguments.folder.clone());
    let _lock = lock(&folder).context("failed to lock the folder of logs")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let written = runtime.block_on(writer::run(folder, arguments.flags.limits()));
    written.context("failed to write the pods' logs")
}

/// Three descriptors per pod are more than the usual soft limit.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "the limit of file descriptors stays: further pods may wait for their logs");
    }
}

fn lock(folder: &Folder) -> io::Result<Flock<OwnedFd>> {
    let mut options = File::options();
    let mut file = options
        .create(true)
        .read(true)
        .append(true)
        .open(folder.path().join(LOCK))?;
    let lock = Flock::lock(OwnedFd::from(file.try_clone()?), FlockArg::LockExclusive);
    let lock = lock.map_err(|(_, error)| io::Error::from(error))?;
    // On a full disk output is lost, but pods must not wait for a writer.
    if let Err(error) = record_process(&mut file) {
        warn!(%error, "the writer of the pods' logs is not recorded: the next agent cannot replace it");
    }
    Ok(lock)
}

fn record_process(file: &mut File) -> io::Result<()> {
    let own = process::identify(rustix::process::getpid().as_raw_pid());
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&own)?)
}

/// Keeps a writer running. One of a previous agent is ended first.
pub(super) async fn keep(config: Arc<RuntimeConfig>) {
    if let Some(previous) = previous(&config) {
        // SIGKILL, which ends a stopped process too: a writer keeps nothing.
        previous.kill();
        previous.ended().await;
    }
    loop {
        match start(&config) {
            Ok(writer) => {
                writer.ended().await;
                warn!("the writer of the pods' logs has ended: it is started again");
            }
            Err(error) => warn!(%error, "failed to start the writer of the pods' logs"),
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// The file of the writer's own messages, after those of the writers before it as long as they are short.
fn own_log(config: &RuntimeConfig) -> io::Result<File> {
    let mut options = File::options();
    let path = config.logs().path().join(OWN_LOG);
    let file = options.create(true).append(true).open(path)?;
    if file.metadata()?.len() > OWN_LOG_BYTES_MAX {
        file.set_len(0)?;
    }
    Ok(file)
}

/// The writer that holds the lock. Its process may have ended, and another one may have its pid: then there is none.
fn previous(config: &RuntimeConfig) -> Option<Running> {
    let mut file = File::open(config.logs().path().join(LOCK)).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let process: Process = serde_json::from_str(&text).ok()?;
    Running::adopt(process)
}

fn start(config: &RuntimeConfig) -> io::Result<Running> {
    let cgroup = config.logs_cgroup();
    cgroup::make(&cgroup)?;
    let mut command = Command::new(&config.agent);
    command.arg("pod-logs");
    command.arg("--folder").arg(config.logs().path());
    command.arg("--cgroup").arg(cgroup);
    command.args(config.log_flags.arguments());
    // It outlives the agent, and so must not hold open what the agent writes its own log to.
    let own_log = own_log(config).map_or_else(|_full_disk| Stdio::null(), Stdio::from);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(own_log);
    Running::of(&command.spawn()?)
}
