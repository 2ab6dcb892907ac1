//! One side of the comparison: two nodes with pods, and the implementation of VIPs.

use anyhow::{Context, Result};
use dormouse_world::{Host, Process, Program};

use super::commands::{run, set};
use super::pods::{self, ANSWER_PORT, Plain, Pods, STREAM_PORT};
use super::services::Services;
use super::{Bench, iptables, nftables, ours};

/// Lifetime of the servers, in seconds: they end even if the benchmark is killed.
const SERVERS_SECONDS: &str = "3600";
/// More threads than clients, so that no connection waits.
const SERVER_THREADS: &str = "16";

/// The implementation of VIPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// None: bridge and routes only.
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
    /// Agents and servers; dropping the side ends them.
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
            enable_gro(node)?;
        }
        let pods = if kind == Kind::Ours {
            for node in nodes {
                processes.push(ours::start(bench, node, &[])?);
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

/// Enables generic receive offload on the uplink, as a network card does, on every side.
pub(in crate::bench) fn enable_gro(node: &Host) -> Result<()> {
    let command = ["ethtool", "-K", node.uplink(), "gro", "on"];
    run(Some(&node.netns), &command, "")?;
    // Packets of pods are routed, so netfilter need not see them on the bridge as well.
    set(&node.netns, "bridge/bridge-nf-call-ip6tables", "0")
}

fn serve(kind: Kind, node: &Host, services: &Services) -> Result<()> {
    let netns = Some(node.netns.as_path());
    let done = match kind {
        Kind::Plain => Ok(()),
        Kind::Iptables => run(netns, &["ip6tables-restore"], &iptables::rules(services)).map(drop),
        Kind::Nftables => run(netns, &["nft", "-f", "-"], &nftables::rules(services)).map(drop),
        Kind::Ours => ours::write_services(node, services),
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
        let replies = Program::new(&bench.load)
            .args(["server", "--port", &port])
            .args(["--seconds", SERVERS_SECONDS, "--threads", SERVER_THREADS])
            .log(log("server"));
        // It is idle until a client connects, and ends with the world at the latest.
        let stream = Program::new("iperf3").arg("--server").log(log("iperf3"));
        for program in [replies, stream] {
            processes.push(bench.world.spawn(&pod.host, &program)?);
        }
    }
    Ok(processes)
}
