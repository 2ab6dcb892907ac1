//! A node alone: the test thread's own network namespace, with an uplink, a cgroup, folders and pins.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::address;
use crate::agent::{Home, OwnedHome};
use crate::frame::MACS;
use crate::names;
use crate::netns::{Netns, ip};

/// The node's interface to other hosts.
pub const UPLINK: &str = "eth0";
/// The uplink's other end, in the same namespace: what the node sends arrives there, and no host answers.
pub const FAR_END: &str = "far";

/// A node. Its namespace is the calling thread's, so programs that the test starts and sockets that it opens are on it.
/// Dropping it ends what runs in its cgroup, and removes its cgroup, pins, folder and pods' namespaces.
#[derive(Debug)]
pub struct Node {
    home: OwnedHome,
}

/// Runs a test on a node of its own, on a thread of its own.
pub fn on_node(test: impl FnOnce(&Node) + Send + 'static) {
    if let Err(panicked) = thread::spawn(move || test(&Node::here())).join() {
        panic::resume_unwind(panicked);
    }
}

impl Node {
    /// Gives the calling thread a new network namespace, which becomes the node.
    fn here() -> Self {
        let name = names::fresh("node");
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        ip("link set lo up");
        let mac = MACS.1.map(|byte| format!("{byte:02x}")).join(":");
        ip(&format!(
            "link add {UPLINK} address {mac} type veth peer name {FAR_END}"
        ));
        ip(&format!("link set {FAR_END} up"));
        ip(&format!("link set {UPLINK} up"));
        Self {
            home: OwnedHome::new(&name),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.home.node
    }

    /// The places that its agent is given.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The cgroup (version 2) of its pods.
    pub fn cgroup(&self) -> &Path {
        &self.home.cgroup
    }

    /// Where its agent pins its maps and links. Made by the agent.
    pub fn bpffs(&self) -> &Path {
        &self.home.bpffs
    }

    /// The folder of state and socket, and for what a test has.
    pub fn dir(&self) -> &Path {
        &self.home.folder
    }

    /// Gives the uplink the node's address.
    pub fn take_address(&self) {
        ip(&format!(
            "-6 address add {}/64 dev {UPLINK} nodad",
            address::NODE
        ));
    }

    /// A namespace for a pod of this node, its loopback device down.
    pub fn pod(&self, id: &str) -> Netns {
        Netns::named(&self.pod_name(id))
    }

    fn pod_name(&self, id: &str) -> String {
        format!("{}-{id}", self.name())
    }

    /// The namespaces of its pods.
    fn namespaces(&self) -> Vec<PathBuf> {
        let start = self.pod_name("");
        let files = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let ours = files.filter(|file| file.file_name().to_string_lossy().starts_with(&start));
        ours.map(|file| file.path()).collect()
    }
}

/// Pods that the agent's own runtime runs.
impl Node {
    /// The record that the agent keeps of a pod.
    pub fn record(&self, uid: &str) -> PathBuf {
        let pods = self.home.state_dir().join("pods");
        pods.join(format!("{uid}.json"))
    }

    /// The process of a running pod.
    pub fn pid(&self, uid: &str) -> u64 {
        let bytes = fs::read(self.record(uid)).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        record["state"]["running"]["pid"].as_u64().unwrap()
    }

    /// Asserts that a pod's cgroup, its namespace and its record are gone.
    pub fn assert_nothing_is_left(&self, uid: &str) {
        let cgroup = self.cgroup().join(format!("pod-{uid}"));
        assert!(!cgroup.exists(), "its cgroup is gone");
        assert!(self.namespaces().is_empty(), "its namespace is gone");
        assert!(!self.record(uid).exists(), "its record is gone");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Pods that run hold their namespaces; both go however the test ended.
        let _ = fs::write(self.cgroup().join("cgroup.kill"), "1");
        let start = self.pod_name("");
        let _ = dormouse_world::Netns::clear(|name| name.starts_with(&start));
    }
}

/// A Python program in a node's cgroup (version 2) and in the calling thread's network namespace.
pub fn python_in(cgroup: &Path, program: &str) -> Command {
    let procs = cgroup.join("cgroup.procs");
    let enter = format!("echo $$ > {} && exec python3 -u -c \"$0\"", procs.display());
    let mut command = Command::new("sh");
    command.args(["-c", &enter, program]);
    command
}
