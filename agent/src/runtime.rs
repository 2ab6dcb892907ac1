//! The runtime of standalone pods: each is a process of an unprivileged user in its own namespaces and cgroup, connected by the CNI plugin.
//!
//! Pods outlive the agent: each has a record, by which the next agent finds its process. One task per pod ([`lifecycle`]) reports
//! to the node's loop.

mod cgroup;
mod ending;
mod failure;
pub mod init;
mod lifecycle;
pub mod logs;
mod node_ids;
mod output;
mod plugin;
mod probe;
mod process;
mod record;
mod root;
mod sockets;
mod spec;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_agent_logs::Folder;
use dormouse_fleet::proto::{PodSpec, PodStatus, pod_status::Phase};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use failure::OpenError;
use lifecycle::Shared;
use logs::LogFlags;
use record::Record;

/// Capacity of the channel of pod states to the node's loop.
const STATUSES_MAX: usize = 256;
/// The interface inside a pod.
const POD_IFNAME: &str = "eth0";
/// The cgroup of the writer of the pods' logs, below the node's.
pub(crate) const LOGS_CGROUP: &str = "dormouse-logs";
/// The name of the CNI network configuration.
const NETWORK: &str = "dormouse";

/// Paths and names that the runtime needs.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Name of the node: in the pods' environment, and in the names of their namespaces.
    pub node: String,
    /// Contains `pods/`, with a record per pod, and `logs/`.
    pub state_dir: PathBuf,
    /// cgroup (v2) of the node; each pod gets a child of it, and so does the writer of their logs.
    pub cgroup: PathBuf,
    /// The plugin binary.
    pub cni: PathBuf,
    /// The agent's socket, passed to the plugin.
    pub socket: PathBuf,
    /// The agent's own binary, for `pod-init` and `pod-logs`.
    pub agent: PathBuf,
    /// The bounds of the pods' logs.
    pub log_flags: LogFlags,
}

impl RuntimeConfig {
    fn pods_dir(&self) -> PathBuf {
        self.state_dir.join("pods")
    }

    fn record_path(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(format!("{uid}.json"))
    }

    /// The pods' logs.
    pub fn logs(&self) -> Folder {
        Folder::new(self.state_dir.join("logs"))
    }

    fn logs_cgroup(&self) -> PathBuf {
        self.cgroup.join(LOGS_CGROUP)
    }

    /// Written by `pod-init` when it cannot execute the pod's command.
    fn error_path(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(format!("{uid}.error"))
    }

    fn netns_path(&self, uid: &str) -> PathBuf {
        let short: String = uid.chars().take(13).collect();
        Path::new("/run/netns").join(format!("{}-{short}", self.node))
    }

    fn cgroup_path(&self, uid: &str) -> PathBuf {
        self.cgroup.join(format!("pod-{uid}"))
    }
}

/// The standalone pods of this node.
pub struct Runtime {
    shared: Shared,
    pods: BTreeMap<String, CancellationToken>,
    statuses: mpsc::Sender<PodStatus>,
    /// The writer of the logs was started: with the first pod.
    writes_logs: bool,
}

impl Runtime {
    /// Recovers the pods of the previous agent from their records, and continues each in its state. The plugin's socket need not
    /// be served yet: pods wait for it.
    pub fn open(config: RuntimeConfig) -> Result<(Self, mpsc::Receiver<PodStatus>), OpenError> {
        record::make_dir(&config.pods_dir())?;
        record::make_dir(config.logs().path())?;
        let records = record::read_all(&config.pods_dir())?;
        cgroup::enable(&config.cgroup);
        let root = root::make(&config).map_err(OpenError::Root)?;
        let (statuses, receiver) = mpsc::channel(STATUSES_MAX);
        let shared = Shared {
            config: Arc::new(config),
            root: Arc::new(root),
        };
        let mut runtime = Self {
            shared,
            pods: BTreeMap::new(),
            statuses,
            writes_logs: false,
        };
        for record in records {
            info!(pod = %record.name, uid = %record.uid, state = record.state.name(), "pod recovered");
            runtime.start(record);
        }
        Ok((runtime, receiver))
    }

    /// Starts a pod, or stops it, as its specification says. Idempotent.
    pub fn run(&mut self, spec: PodSpec) {
        if !record::is_uid(&spec.uid) {
            warn!(uid = %spec.uid, "pod ignored: its uid must consist of letters, digits and dashes");
            return;
        }
        match (self.pods.get(&spec.uid), spec.stop) {
            (Some(stop), true) => stop.cancel(),
            (Some(_), false) => {}
            // Its last state was lost on the stream, or the pod never was on this node.
            (None, true) => self.say_gone(spec),
            (None, false) => self.start(Record::new(spec)),
        }
    }

    /// Starts these pods, and stops all others.
    pub fn sync(&mut self, specs: Vec<PodSpec>) {
        for (uid, stop) in &self.pods {
            if !specs.iter().any(|spec| spec.uid == *uid) {
                stop.cancel();
            }
        }
        for spec in specs {
            self.run(spec);
        }
    }

    /// Removes a pod whose final state was sent; its uid may be started again.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// The logs of the pods, also of those that have ended.
    pub fn logs(&self) -> Folder {
        self.shared.config.logs()
    }

    /// Number of pods, in any state.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there are no pods.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn start(&mut self, record: Record) {
        let stop = CancellationToken::new();
        self.pods.insert(record.uid.clone(), stop.clone());
        let shared = self.shared.clone();
        if !self.writes_logs {
            self.writes_logs = true;
            tokio::spawn(logs::keep(Arc::clone(&shared.config)));
        }
        tokio::spawn(lifecycle::run(shared, record, stop, self.statuses.clone()));
    }

    fn say_gone(&mut self, spec: PodSpec) {
        let status = PodStatus {
            namespace: spec.namespace,
            name: spec.name,
            uid: spec.uid,
            phase: Phase::Gone.into(),
            ..PodStatus::default()
        };
        let statuses = self.statuses.clone();
        tokio::spawn(async move {
            let _ = statuses.send(status).await;
        });
    }
}
