//! A node's metrics about wiring pods, with the real agent and the real plugin.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "runtime/ground.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod ground;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dormouse_agent_sys::netns;
use ground::{Ground, ip, wait};
use serde_json::json;

const ADDRESS: &str = "2001:db8:d0:0:0:1:0:1";
const METRICS: &str = "[::1]:10249";

/// A node whose agent runs; what it made goes with it.
struct Node<'a> {
    ground: &'a Ground,
    agent: Child,
}

/// A pod's namespace.
struct Pod(PathBuf);

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = netns::remove(&self.0);
    }
}

impl<'a> Node<'a> {
    fn start(ground: &'a Ground) -> Self {
        ip(&format!("-6 address add {ADDRESS}/64 dev eth0 nodad"));
        let agent = agent(ground);
        Self { ground, agent }
    }

    /// Has the agent die without a word, and starts it again when `meanwhile` is done.
    fn crash(&mut self, meanwhile: impl FnOnce()) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
        meanwhile();
        self.agent = agent(self.ground);
    }

    fn pod(&self, name: &str) -> Pod {
        let path = Path::new("/run/netns").join(format!("{}-{name}", self.ground.node));
        netns::create(&path).unwrap();
        Pod(path)
    }

    /// Calls the plugin as a container runtime does.
    fn call(&self, command: &str, pod: &Pod) {
        let configuration = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "dormouse",
            "socket": self.ground.socket(), "stateDir": self.ground.state_dir(),
        });
        let mut plugin = Command::new(ground::plugin())
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", pod.0.file_name().unwrap())
            .env("CNI_NETNS", &pod.0)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = plugin.stdin.take().unwrap();
        stdin
            .write_all(configuration.to_string().as_bytes())
            .unwrap();
        drop(stdin);
        let output = plugin.wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let _ = dormouse_agent_datapath::detach(&self.ground.bpffs());
    }
}

fn agent(ground: &Ground) -> Child {
    let mut agent = ground
        .command(&["run", "--runtime", "none", "--uplink", "eth0"])
        .args(["--address", ADDRESS, "--metrics", METRICS])
        .args(["--prefix", "2001:db8:d0:0:0:1::/96"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    wait("the agent to serve", || {
        assert_eq!(agent.try_wait().unwrap(), None, "the agent ended");
        UnixStream::connect(ground.socket()).is_ok() && TcpStream::connect(METRICS).is_ok()
    });
    agent
}

fn scrape() -> String {
    let mut stream = TcpStream::connect(METRICS).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of a series; 0 where there is none.
fn series(name: &str) -> f64 {
    let text = scrape();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// The same of one that counts.
fn count(name: &str) -> i64 {
    format!("{:.0}", series(name)).parse().unwrap()
}

fn stage(command: &str, stage: &str) -> String {
    format!(r#"dormouse_cni_stage_duration_seconds_count{{command="{command}",stage="{stage}"}}"#)
}

fn pool(state: &str) -> String {
    format!(r#"dormouse_address_pool{{state="{state}"}}"#)
}

#[test]
fn adds_deletes_the_pool_and_what_was_healed_are_told() {
    ground::stand(|ground| {
        let mut node = Node::start(ground);
        let free = count(&pool("free"));
        let (a, b) = (node.pod("a"), node.pod("b"));
        node.call("ADD", &a);
        node.call("ADD", &b);
        for part in ["journal", "host", "inside", "datapath"] {
            assert_eq!(count(&stage("ADD", part)), 2, "{part}");
        }
        let sum = r#"dormouse_cni_stage_duration_seconds_sum{command="ADD",stage="host"}"#;
        assert!(series(sum) > 0.0);
        node.call("DEL", &a);
        for part in ["journal", "host", "datapath"] {
            assert_eq!(count(&stage("DEL", part)), 1, "{part}");
        }
        let states = ["leased", "quarantined", "free"].map(|state| count(&pool(state)));
        assert_eq!(states, [1, 1, free - 2]);

        let repaired = r#"dormouse_addresses_reclaimed_total{what="lease"}"#;
        assert_eq!(count(repaired), 0);
        node.crash(move || {
            drop(b);
            wait("the pod's link to go", || {
                let links = nix::net::if_::if_nameindex().unwrap();
                let mut names = links.iter().map(|link| link.name().to_string_lossy());
                names.all(|name| !name.starts_with("dm0"))
            });
        });
        assert_eq!(count(repaired), 1);
        assert_eq!(count(&pool("leased")), 0);
    });
}
