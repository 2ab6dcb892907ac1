//! A store and the members of a sharded scheduler, each a process.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use dormouse_cluster::Client;
use dormouse_store_checker::process::StoreProcess;
use dormouse_store_checker::wait::{until, within};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::ledger::Ledger;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse");
/// The field of the line that names the address of the metrics.
const METRICS: &str = r#""role":"metrics""#;
/// Pods that a node can have.
const PODS_OF_NODE: usize = 6;

/// A member's process.
struct Member {
    child: Child,
    /// Its log, line by line.
    log: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct World {
    pub(crate) client: Client,
    extra: &'static [&'static str],
    members: BTreeMap<String, Member>,
    folder: TempDir,
    store: StoreProcess,
}

impl World {
    pub(crate) async fn new(extra: &'static [&'static str]) -> Self {
        let folder = TempDir::new().unwrap();
        let data = format!("--data-dir={}", folder.path().join("store").display());
        let store = StoreProcess::start(Path::new(PROGRAM), [data])
            .await
            .unwrap();
        Self {
            client: Client::connect(&store.endpoint).await.unwrap(),
            extra,
            members: BTreeMap::new(),
            folder,
            store,
        }
    }

    /// The command of a member: `leader`, `shard-…` or `relay-…`.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        match name.split_once('-') {
            None => command.args(["scheduler", "--shards"]).args(self.extra),
            Some(("shard", name)) => command.args(["scheduler", "--shard", "--name", name]),
            Some((_, name)) => command.args(["relay", "--name", name]),
        };
        command
            .args(["--store", &self.store.endpoint, "--lease-duration=2s"])
            .args(["--listen=[::1]:0", "--metrics-listen=[::1]:0"])
            .env("DORMOUSE_LOG", "info,dormouse_scheduler=info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Starts a member, and waits until it serves its metrics.
    pub(crate) async fn start(&mut self, name: &str) {
        let command = self.command(name);
        self.spawn(name, command).await;
    }

    pub(crate) async fn start_with_other_profile(&mut self, name: &str) {
        let config = self.folder.path().join("config.yaml");
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: default-scheduler\n  plugins:\n    score:\n      disabled:\n      - name: ImageLocality\n";
        std::fs::write(&config, text).unwrap();
        let mut command = self.command(name);
        command.arg("--config").arg(config);
        self.spawn(name, command).await;
    }

    async fn spawn(&mut self, name: &str, mut command: Command) {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (copy, of) = (Arc::clone(&log), name.to_owned());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{of}: {line}");
                copy.lock().unwrap().push(line);
            }
        });
        self.members.insert(name.to_owned(), Member { child, log });
        self.logged(name, METRICS).await;
        if name != "leader" {
            self.logged(name, "registered").await;
        }
    }

    /// The text that a member logs when it ends by itself, with an error.
    pub(crate) async fn run_to_end(&self, name: &str) -> String {
        let output = within(self.command(name).output()).await.unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self, name: &str) {
        let mut member = self.members.remove(name).unwrap();
        member.child.kill().await.unwrap();
    }

    /// Waits until a member has logged a text.
    pub(crate) async fn logged(&self, name: &str, text: &str) {
        until(&format!("{name} logs: {text}"), async || {
            self.line(name, text).is_some()
        })
        .await;
    }

    fn line(&self, name: &str, text: &str) -> Option<String> {
        let log = self.members[name].log.lock().unwrap();
        log.iter().find(|line| line.contains(text)).cloned()
    }

    /// The metrics of a member.
    pub(crate) async fn metrics(&self, name: &str) -> String {
        let line = self.line(name, METRICS).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = line["fields"]["address"].as_str().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /metrics HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    /// The number of a shard's nodes, if its metrics have it.
    pub(crate) async fn nodes_of(&self, name: &str) -> Option<u32> {
        let metrics = self.metrics(name).await;
        let mut lines = metrics.lines();
        let nodes = lines.find_map(|line| line.strip_prefix("dormouse_scheduler_shard_nodes "));
        nodes?.parse().ok()
    }

    /// Nodes, of which each third has fast disks and each fifth a taint.
    pub(crate) async fn add_nodes(&self, numbers: Range<usize>) {
        for number in numbers {
            let name = format!("n{number}");
            let disk = if number % 3 == 0 { "fast" } else { "slow" };
            let taints = match number % 5 {
                0 => json!([{"key": "reserved", "effect": "NoSchedule"}]),
                _ => json!([]),
            };
            let node: Node = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": disk}},
                "spec": {"taints": taints},
                "status": {
                    "allocatable": {"cpu": "4", "memory": "8Gi", "pods": PODS_OF_NODE.to_string()},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }))
            .unwrap();
            self.client.create(&node).await.unwrap();
        }
    }

    /// Pods, of which each fourth selects fast disks.
    pub(crate) async fn add_pods(&self, numbers: Range<usize>) {
        for number in numbers {
            let name = format!("p{number}");
            let selector = match number % 4 {
                0 => json!({"disk": "fast"}),
                _ => json!({}),
            };
            let container =
                json!({"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "500m"}}});
            let pod: Pod = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
                "spec": {"containers": [container], "nodeSelector": selector},
            }))
            .unwrap();
            self.client.create(&pod).await.unwrap();
        }
    }

    /// Each pod is on one node, which can have it, and no node has more pods than fit.
    pub(crate) async fn check(&self, ledger: &Ledger) {
        let bound = ledger.nodes();
        let pods: Vec<Pod> = self.client.list(None).await.unwrap().items;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &pods {
            let name = pod.metadata.name.as_deref().unwrap();
            let node = pod.spec.as_ref().unwrap().node_name.clone();
            let node = node.unwrap_or_else(|| panic!("{name} is lost"));
            assert_eq!(bound.get(name), Some(&node));
            let number: usize = node[1..].parse().unwrap();
            let selects = pod.spec.as_ref().unwrap().node_selector.as_ref();
            let is_fast = selects.is_some_and(|labels| !labels.is_empty());
            assert!(!is_fast || number.is_multiple_of(3), "{name} is on {node}");
            assert!(
                !number.is_multiple_of(5),
                "{name} is on {node}, which has a taint"
            );
            *counts.entry(node).or_default() += 1;
        }
        let crowded = counts.iter().find(|(_, count)| **count > PODS_OF_NODE);
        assert_eq!(crowded, None);
    }
}
