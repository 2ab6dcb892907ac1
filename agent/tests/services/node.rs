//! A node with the real agent, and pods that the real plugin wires.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dormouse_world::{Host, Process, Program, World};
use serde_json::{Value, json};

use crate::manifests::{Condition, End};
use crate::place::Place;

/// A pod.
pub(crate) struct Pod {
    /// Its sockets as the node's cgroup leads them.
    pub(crate) place: Place,
    /// Its sockets without that: only packet programs see what they send.
    pub(crate) bare: Place,
    /// Where its programs run.
    pub(crate) host: Host,
    pub(crate) end: End,
}

/// A node.
pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) place: Place,
    pub(crate) pods: Vec<Pod>,
    pub(crate) ends: [End; 2],
    pub(crate) agent: Option<Process>,
    pub(crate) agents: u32,
}

impl Node {
    pub(crate) fn address(&self) -> IpAddr {
        self.ends[0].address
    }

    pub(crate) fn address4(&self) -> IpAddr {
        self.ends[1].address
    }
}

pub(crate) fn node(world: &World, host: &Host, number: u8) -> Node {
    assert_eq!(world.nodes()[usize::from(number) - 1].name, host.name);
    let end = |address: IpAddr| End {
        address,
        node: host.name.clone(),
        condition: Condition::Ready,
    };
    Node {
        place: Place::outside(&host.netns),
        ends: [
            end(host.address.into()),
            end(IpAddr::from([192, 0, 2, number])),
        ],
        host: host.clone(),
        pods: Vec::new(),
        agent: None,
        agents: 0,
    }
}

/// The agent's command line on this node.
pub(crate) fn command(host: &Host, address4: IpAddr, manifests: &Path) -> Program {
    let prefix = format!("{}/96", host.prefix.unwrap());
    Program::new(env!("CARGO_BIN_EXE_dormouse-agent"))
        .args(["run", "--runtime", "none", "--uplink", host.uplink()])
        .args(["--node", &host.name, "--prefix", &prefix])
        .args([
            "--address",
            &host.address.to_string(),
            "--address4",
            &address4.to_string(),
        ])
        .args([
            "--service-range",
            "fd00:20::/112",
            "--service-range",
            "10.96.0.0/16",
        ])
        .args(["--pod-range", "2001:db8:d0::/64"])
        .arg("--manifests")
        .arg(manifests)
        .arg("--state-dir")
        .arg(host.folder.join("state"))
        .arg("--socket")
        .arg(host.folder.join("agent.sock"))
        .arg("--bpffs")
        .arg(&host.bpffs)
        .arg("--cgroup")
        .arg(&host.cgroup)
}

/// Starts the agent, with `more` on its command line.
pub(crate) fn start(world: &World, node: &mut Node, manifests: &Path, more: &[&str]) {
    node.agents += 1;
    let log = node.host.log(&format!("agent-{}", node.agents));
    let program = command(&node.host, node.address4(), manifests);
    let program = program.args(more).log(log);
    node.agent = Some(world.spawn(&node.host, &program).unwrap());
}

/// Executes the plugin as a container runtime would that wants this of it. Returns the pod's address.
pub(crate) fn attach(node: &Node, id: &str, netns: &Path, runtime: &Value) -> IpAddr {
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "dormouse", "runtimeConfig": runtime,
        "socket": node.host.folder.join("agent.sock"), "stateDir": node.host.folder.join("state"),
    });
    let call = || {
        let mut child = Command::new(plugin())
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", netns)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(conf.to_string().as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let output = node.host.enter(call).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.strip_suffix("/128").unwrap().parse().unwrap()
}

/// The plugin's binary, beside the agent's: cargo builds binaries only for tests of their own package.
fn plugin() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_dormouse-agent")).with_file_name("dormouse-cni");
    if !path.exists() {
        let target = path.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--package", "dormouse-cni", "--target-dir"])
            .arg(target);
        if path.ancestors().nth(1).unwrap().ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "dormouse-cni builds");
    }
    path
}
