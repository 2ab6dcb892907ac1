//! Runs pods without kubelet: each as a process in its own network namespace and cgroup, wired by the real CNI plugin.
//!
//! Pods outlive their agent: what is running is recorded, found again and kept. One task a pod ([`life`]); what it
//! says goes to the node's loop.

mod cgroup;
mod failure;
pub mod init;
mod life;
mod plugin;
mod probe;
mod process;
mod record;
mod sockets;
mod spec;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_fleet::proto::{PodSpec, PodStatus, pod_status::Phase};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use record::{Record, RecordError};

/// Pod states that wait for the node's loop.
const STATUSES_MAX: usize = 256;
/// The interface inside a pod.
const POD_IFNAME: &str = "eth0";
/// The network that the runtime asks the plugin for.
const NETWORK: &str = "dormouse";

/// Where the runtime finds and keeps what it needs.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The node's name: pods are told it, and their namespaces bear it.
    pub node: String,
    /// Holds `pods/`, with a record and a log for each pod.
    pub state_dir: PathBuf,
    /// The node's cgroup (v2); each pod gets a child of it.
    pub cgroup: PathBuf,
    /// The plugin's binary.
    pub cni: PathBuf,
    /// The agent's socket, which the plugin calls.
    pub socket: PathBuf,
    /// This agent's own binary, for `pod-init`.
    pub agent: PathBuf,
}

impl RuntimeConfig {
    fn pods_dir(&self) -> PathBuf {
        self.state_dir.join("pods")
    }

    fn record_path(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(format!("{uid}.json"))
    }

    fn log_path(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(format!("{uid}.log"))
    }

    fn netns_path(&self, uid: &str) -> PathBuf {
        let short: String = uid.chars().take(13).collect();
        Path::new("/run/netns").join(format!("{}-{short}", self.node))
    }

    fn cgroup_path(&self, uid: &str) -> PathBuf {
        self.cgroup.join(format!("pod-{uid}"))
    }
}

/// The pods of this node.
pub struct Runtime {
    config: Arc<RuntimeConfig>,
    pods: BTreeMap<String, CancellationToken>,
    statuses: mpsc::Sender<PodStatus>,
}

impl Runtime {
    /// Finds the pods that an agent before this one left, and goes on with each where it stands. The plugin's socket
    /// need not be served yet: pods wait for it.
    pub fn open(config: RuntimeConfig) -> Result<(Self, mpsc::Receiver<PodStatus>), RecordError> {
        record::make_dir(&config.pods_dir())?;
        let records = record::read_all(&config.pods_dir())?;
        let (statuses, receiver) = mpsc::channel(STATUSES_MAX);
        let mut runtime = Self {
            config: Arc::new(config),
            pods: BTreeMap::new(),
            statuses,
        };
        for record in records {
            info!(pod = %record.name, uid = %record.uid, state = ?record.state, "pod found again");
            runtime.start(record);
        }
        Ok((runtime, receiver))
    }

    /// Runs a pod, or stops it. Asking twice changes nothing.
    pub fn run(&mut self, spec: PodSpec) {
        if !record::is_uid(&spec.uid) {
            warn!(uid = %spec.uid, "a pod's uid must be letters, digits and dashes: ignored");
            return;
        }
        match (self.pods.get(&spec.uid), spec.stop) {
            (Some(stop), true) => stop.cancel(),
            (Some(_), false) => {}
            // Its last word was lost, or it never came here.
            (None, true) => self.say_gone(spec),
            (None, false) => self.start(Record::new(spec)),
        }
    }

    /// Runs these pods, and stops all others.
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

    /// A pod said its last word: it may be asked for anew.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// How many pods are here, in whatever state.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn start(&mut self, record: Record) {
        let stop = CancellationToken::new();
        self.pods.insert(record.uid.clone(), stop.clone());
        let config = Arc::clone(&self.config);
        tokio::spawn(life::live(config, record, stop, self.statuses.clone()));
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
