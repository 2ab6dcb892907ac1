//! One side of the comparison: two nodes with pods, and whatever serves VIPs there.

use anyhow::{Context, Result};
use dormouse_world::{Host, Process, Program};

use super::commands::{run, set};
use super::pods::{self, ANSWER_PORT, Plain, Pods, STREAM_PORT};
use super::services::Services;
use super::{Bench, iptables, nftables, ours};

/// No server outlives its bench by more.
const SERVERS_SECONDS: &str = "3600";
/// More than there are clients, so that none waits for another.
const SERVER_THREADS: &str = "16";

/// What serves VIPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing: a bridge, routes.
    Plain,
    /// kube-proxy's rules, mode `iptables`.
    Iptables,
    /// kube-proxy's rules, mode `nftables`.
    Nftables,
    /// Dormouse.
    Ours,
}

/// Two nodes.
pub(super) struct Side {
    /// Its pods.
    pub(super) pods: Pods,
    /// Its Services.
    pub(super) services: Services,
    /// Agents and servers; they end with it.
    _processes: Vec<Process>,
}

impl Side {
    /// Wires pods on both nodes, starts the servers and serves `count` Services.
    pub(super) fn start(
        bench: &Bench<'_>,
        kind: Kind,
        nodes: [&Host; 2],
        count: u32,
    ) -> Result<Self> {
        let mut processes = Vec::new();
        for node in nodes {
            like_a_cable(node)?;
        }
        let pods = if kind == Kind::Ours {
            for node in nodes {
                processes.push(ours::start(bench, node)?);
            }
            let plugin = &bench.options.binaries.cni;
            pods::make(nodes, |node, pod| ours::wire(plugin, node, pod))?
        } else {
            let mut plain = Plain::prepare(nodes)?;
            pods::make(nodes, |node, pod| plain.wire(node, pod))?
        };
        let services = Services::new(count, &pods.answering(), pods.servers[0].at(STREAM_PORT));
        for node in nodes {
            serve(kind, node, &services)?;
        }
        processes.extend(servers(bench, &pods)?);
        Ok(Self {
            pods,
            services,
            _processes: processes,
        })
    }
}

/// An uplink takes frames as a network card does: merged on arrival, on every side.
fn like_a_cable(node: &Host) -> Result<()> {
    let grow = ["ethtool", "-K", node.uplink(), "gro", "on"];
    run(Some(&node.netns), &grow, "")?;
    // Packets of pods are routed here: what the bridge hands on is not filtered a second time.
    set(&node.netns, "bridge/bridge-nf-call-ip6tables", "0")
}

fn serve(kind: Kind, node: &Host, services: &Services) -> Result<()> {
    let netns = Some(node.netns.as_path());
    let done = match kind {
        Kind::Plain => Ok(()),
        Kind::Iptables => run(netns, &["ip6tables-restore"], &iptables::rules(services)).map(drop),
        Kind::Nftables => run(netns, &["nft", "-f", "-"], &nftables::rules(services)).map(drop),
        Kind::Ours => ours::give(node, services),
    };
    done.with_context(|| format!("failed to serve Services on {}", node.name))
}

fn servers(bench: &Bench<'_>, pods: &Pods) -> Result<Vec<Process>> {
    let port = ANSWER_PORT.to_string();
    let mut processes = Vec::new();
    for pod in pods.listening() {
        let log = |name: &str| {
            pod.host
                .folder
                .join(format!("{}-{name}.log", pod.host.name))
        };
        let answer = Program::new(&bench.load)
            .args(["answer", "--port", &port])
            .args(["--seconds", SERVERS_SECONDS, "--threads", SERVER_THREADS])
            .log(log("answer"));
        // It does nothing until it is asked, and ends with the world at the latest.
        let stream = Program::new("iperf3").arg("--server").log(log("iperf3"));
        for program in [answer, stream] {
            processes.push(bench.world.spawn(&pod.host, &program)?);
        }
    }
    Ok(processes)
}
