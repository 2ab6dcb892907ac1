//! A node with the real agent, and pods that the real plugin wires.

use std::net::IpAddr;
use std::path::Path;

use dormouse_rig::plugin::address_of;
use dormouse_rig::{Call, Home, Netns, Sockets, binaries};
use dormouse_world::{Host, Process, Program};
use serde_json::{Value, json};

use crate::manifests::{Condition, End};
use crate::uplink::Uplink;

/// A pod.
pub(crate) struct Pod {
    /// Its sockets, in the node's cgroup.
    pub(crate) sockets: Sockets,
    /// Its sockets in no cgroup: only the programs of its link see what they send.
    pub(crate) bare: Sockets,
    /// Where its programs run.
    pub(crate) host: Host,
    pub(crate) end: End,
    pub(crate) _netns: Netns,
}

/// A node.
pub(crate) struct Node {
    pub(crate) host: Host,
    pub(crate) uplink: Uplink,
    pub(crate) sockets: Sockets,
    pub(crate) pods: Vec<Pod>,
    /// The node itself as an endpoint, by its IPv6 and by its IPv4 address.
    pub(crate) ends: [End; 2],
    pub(crate) agent: Option<Process>,
    /// How many agents it has had.
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

/// The node of this host, without an agent yet.
pub(crate) fn node(host: &Host, number: u8, uplink: Uplink) -> Node {
    let end = |address: IpAddr| End {
        address,
        node: host.name.clone(),
        condition: Condition::Ready,
    };
    Node {
        sockets: Sockets::bare(&host.netns),
        ends: [
            end(host.address.into()),
            end(IpAddr::from([192, 0, 2, number])),
        ],
        host: host.clone(),
        uplink,
        pods: Vec::new(),
        agent: None,
        agents: 0,
    }
}

fn home(host: &Host) -> Home {
    Home::new(host.name.clone(), &host.folder, &host.cgroup)
}

/// The agent's command line on this node.
pub(crate) fn command(host: &Host, address4: IpAddr, manifests: &Path) -> Program {
    host.agent(&binaries::agent())
        .args(["--runtime", "none", "--pod-range", "2001:db8:d0::/64"])
        .args(["--address4", &address4.to_string()])
        .args(["--service-range", "fd00:20::/112,10.96.0.0/16"])
        .arg("--manifests")
        .arg(manifests)
}

/// Starts the agent, with `more` on its command line.
pub(crate) fn start(node: &mut Node, manifests: &Path, more: &[&str]) {
    node.agents += 1;
    let log = node.host.log(&format!("agent-{}", node.agents));
    let program = command(&node.host, node.address4(), manifests);
    let program = program.args(node.uplink.flags());
    let program = program.args(more.iter().copied()).log(log);
    node.agent = Some(Process::start(&node.host, &program).unwrap());
}

/// The output of a command of the agent about this node.
pub(crate) fn ask(node: &Node, arguments: &[&str]) -> String {
    let output = home(&node.host).command(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Wires a pod as a container runtime would that has these capabilities' arguments. Returns the pod's address.
pub(crate) fn attach(node: &Node, id: &str, netns: &Netns, runtime: &Value) -> IpAddr {
    address_of(&add(node, id, netns, runtime).succeeds())
}

/// The call by which a container runtime wires a pod.
pub(crate) fn add(node: &Node, id: &str, netns: &Netns, runtime: &Value) -> Call {
    let home = home(&node.host);
    let call = Call::new("ADD", Call::network(&home.socket(), &home.state_dir()));
    let call = call.conf(&json!({"runtimeConfig": runtime}));
    call.attachment(id, netns.path()).on(&node.host.netns)
}

/// Unwires a pod.
pub(crate) fn detach(node: &Node, id: &str) {
    let home = home(&node.host);
    let call = Call::new("DEL", Call::network(&home.socket(), &home.state_dir()));
    let call = call.env("CNI_CONTAINERID", id).env("CNI_IFNAME", "eth0");
    call.on(&node.host.netns).succeeds();
}
