//! The client host and nodes of a group, each node with one pod of short-lived TCP servers and node ports to them.

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use anyhow::Result;
use dormouse_world::{Host, Process, Program, Spec, World};
use serde_json::{Value, json};

use super::super::dataplane::commands::ip;
use super::super::dataplane::pods::{Pod, make_one};
use super::super::dataplane::side::enable_gro;
use super::super::dataplane::{Bench, ours};
use super::connections::{CLIENTS, Rate, connect};
use super::{PREFIX, TURNS};
use crate::demo::cluster::sample;

/// Lifetime of the servers, in seconds: they end even if the benchmark is killed.
const SERVERS_SECONDS: &str = "1800";
const SERVER_THREADS: &str = "32";
/// The first port of the pod's servers, and of the node ports to them. A turn has a backend port of its own, because a backend
/// holds the node's ports in TIME_WAIT for a minute; the port after those of all turns is for connections beside the measured ones.
const PORT: u16 = 8_080;
const NODE_PORT: u16 = 30_080;
/// Longest time until a Service is in force.
const SERVING_LIMIT: Duration = Duration::from_secs(30);

/// The hosts: the client has all addresses of the clients.
pub(super) fn world(nodes: u8) -> Result<World> {
    let world = World::build(&Spec {
        prefix: PREFIX.to_owned(),
        nodes,
    })?;
    let lines = CLIENTS.map(|client| format!("address add {client}/64 dev eth0 nodad"));
    ip(Some(&world.client().netns), &lines)?;
    Ok(world)
}

/// A node with a pod that has servers.
pub(super) struct Node {
    pub(super) address: Ipv6Addr,
    pub(super) pod: Pod,
    host: Host,
    /// The agent and the servers; dropping the node ends them.
    _processes: Vec<Process>,
}

impl Node {
    /// Starts a node and waits until its last node port replies.
    pub(super) fn start(bench: &Bench<'_>, host: &Host, flags: &[&str]) -> Result<Self> {
        enable_gro(host)?;
        let mut processes = vec![ours::start(bench, host, flags)?];
        let plugin = &bench.options.binaries.cni;
        let pod = make_one(host, "server", |node, pod| ours::wire(plugin, node, pod))?;
        for turn in 0..=TURNS {
            let port = (PORT + turn).to_string();
            let program = Program::new(&bench.load)
                .args(["server", "--port", &port])
                .args(["--seconds", SERVERS_SECONDS, "--threads", SERVER_THREADS])
                .log(host.folder.join(format!("server-{port}.log")));
            processes.push(bench.world.spawn(&pod.host, &program)?);
        }
        ours::write_manifests(host, &documents(pod.address))?;
        ip(
            Some(&host.netns),
            &["route add 2001:db8:c0::/64 dev eth0".to_owned()],
        )?;
        let node = Self {
            address: host.address,
            pod,
            host: host.clone(),
            _processes: processes,
        };
        node.wait(bench)?;
        Ok(node)
    }

    fn wait(&self, bench: &Bench<'_>) -> Result<()> {
        let last = self.node_port(TURNS);
        let one = Rate {
            per_second: 1_000,
            length: Duration::from_millis(2),
        };
        let what = format!("{last} to reply");
        bench.options.interrupt.wait_for(&what, SERVING_LIMIT, || {
            let answered = connect(bench, last, one).is_ok_and(|times| times.failed == 0.0);
            Ok(answered.then_some(()))
        })
    }

    /// The sum of the agent's counters and gauges whose lines begin so.
    pub(super) fn metric(&self, name: &str) -> Result<f64> {
        let number = sample(&self.host, ours::METRICS_PORT, &[name])?;
        Ok(number as f64)
    }

    /// The pod's server of a turn.
    pub(super) fn server(&self, turn: u16) -> SocketAddrV6 {
        self.pod.at(PORT + turn)
    }

    /// The node port of a turn, which goes to that server.
    pub(super) fn node_port(&self, turn: u16) -> SocketAddrV6 {
        SocketAddrV6::new(self.address, NODE_PORT + turn, 0, 0)
    }
}

/// One Service for each turn, as one YAML stream of JSON documents.
fn documents(pod: Ipv6Addr) -> String {
    let mut text = String::new();
    for object in (0..=TURNS).flat_map(|turn| objects(pod, turn)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "---\n{object}");
    }
    text
}

/// The Service of a turn, and its slice.
fn objects(pod: Ipv6Addr, turn: u16) -> [Value; 2] {
    let (name, vip) = (format!("turn-{turn}"), format!("fd00:20::{:x}", turn + 1));
    let target = PORT + turn;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "bench"},
        "spec": {
            "type": "NodePort", "clusterIP": vip, "clusterIPs": [vip], "ipFamilies": ["IPv6"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "t", "protocol": "TCP", "port": 80, "targetPort": target, "nodePort": NODE_PORT + turn}],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6",
        "metadata": {
            "name": format!("{name}-1"), "namespace": "bench",
            "labels": {"kubernetes.io/service-name": name},
        },
        "endpoints": [{"addresses": [pod.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "t", "protocol": "TCP", "port": target}],
    });
    [service, slice]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_a_backend_port_of_its_own() {
        let text = documents(Ipv6Addr::LOCALHOST);
        let objects: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| serde_json::from_str(document).unwrap())
            .collect();
        assert_eq!(objects.len(), 2 * usize::from(TURNS + 1));
        let ports = objects.iter().step_by(2).map(|service| {
            let port = &service["spec"]["ports"][0];
            (port["nodePort"].to_string(), port["targetPort"].to_string())
        });
        let ports: std::collections::BTreeSet<_> = ports.collect();
        assert_eq!(ports.len(), usize::from(TURNS + 1));
    }
}
