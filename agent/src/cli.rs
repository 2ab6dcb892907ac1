//! The command line of `dormouse-agent`: each flag of `run` has a `DORMOUSE_*` variable and a default for a single node.

mod deny;
mod doctor;
mod explain;
mod flows;
mod get;
mod install_cni;
mod node_flags;
mod run;
mod start;
mod uninstall;

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use dormouse_agent_inspect::{Exit, InspectError};

use crate::runtime::init::{PodInit, become_pod};
use crate::runtime::logs::{PodLogs, write_logs};

pub use run::{Forwarding, Run, RuntimeKind};

/// The node agent of Dormouse: eBPF data path, pod network and, in standalone mode, the pods' processes
#[derive(Debug, Parser)]
#[command(name = "dormouse-agent", version, after_help = EXAMPLES)]
pub struct Cli {
    /// Log filter, in the syntax of tracing-subscriber's EnvFilter
    #[arg(long, env = "DORMOUSE_LOG", default_value = "info", global = true)]
    pub log: String,
    /// The command to run
    #[command(subcommand)]
    pub verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  Run a node that is connected to control:
    sudo dormouse-agent run --node n1 --uplink eth0 --prefix 2001:db8:d0:0:0:1::/96 \\
      --address 2001:db8:d0:0:0:1:0:1 --join LINE
  Serve the Services of a Kubernetes cluster, beside its kubelet:
    sudo dormouse-agent run --node n1 --runtime none --api-server https://[2001:db8:d0::c]:6443 --kubeconfig agent.conf
  Show the Services of the node, and explain a packet's path:
    dormouse-agent get services -A
    sudo dormouse-agent explain flow 2001:db8:7::17 service/shop/web tcp/80
  Remove Dormouse from this machine; list first what would be removed:
    sudo dormouse-agent uninstall --node n1 --dry-run
    sudo dormouse-agent uninstall --node n1
  Remove the rules of a kube-proxy that ran here before:
    sudo dormouse-agent uninstall --kube-proxy-leftovers --dry-run

Stopping the agent (SIGTERM) leaves the data path and the pods running; the next agent takes them over.";

/// The agent's commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the agent on this node until SIGTERM or SIGINT
    Run(Box<Run>),
    /// Copy dormouse-cni and dormouse-agent to the folder of the container runtime's plugins
    InstallCni(install_cni::InstallCni),
    /// Remove everything that Dormouse created on this machine: links, routes, programs, files; or what kube-proxy left
    Uninstall(Uninstall),
    /// Examine this machine: kernel, network, prefixes, kube-proxy, network configurations, programs of others
    Doctor(Box<doctor::Doctor>),
    /// List Services, apps, backends, drops, pods, addresses or neighbours of this node
    Get(get::Get),
    /// List the connection tracking entries (flows) of this node
    Flows(Box<flows::Flows>),
    /// Explain a packet's path, an address or a drop code
    Explain(explain::Explain),
    /// Drop packets from sources outside: add prefixes to this node's deny list, remove them, or list them
    Deny(deny::Deny),
    /// Serve one request of dormouse-cni while no agent runs (dormouse-cni starts this)
    #[command(hide = true)]
    Offline(Offline),
    /// Run a pod's command inside its namespaces (the agent starts this)
    #[command(hide = true)]
    PodInit(PodInit),
    /// Write the logs of the node's pods (the agent starts this)
    #[command(hide = true)]
    PodLogs(PodLogs),
}

/// The flags of `uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub struct Uninstall {
    /// Name of the node
    #[arg(
        long,
        env = "DORMOUSE_NODE",
        required_unless_present = "kube_proxy_leftovers"
    )]
    pub node: Option<String>,
    /// Remove only what kube-proxy left: its chains of iptables, its tables of nftables, its services of IPVS and their link.
    /// Rules of other programs stay
    #[arg(long)]
    pub kube_proxy_leftovers: bool,
    /// Folder in bpffs in which maps and links are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    pub bpffs: Option<PathBuf>,
    /// State folder of the node
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    pub state_dir: PathBuf,
    /// Unix socket on which the agent serves dormouse-cni
    #[arg(
        long,
        env = "DORMOUSE_SOCKET",
        default_value = "/run/dormouse/agent.sock"
    )]
    pub socket: PathBuf,
    /// First bridge of the pods
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0")]
    pub bridge: String,
    /// cgroup (v2) of the node
    #[arg(long, env = "DORMOUSE_CGROUP", default_value = "/sys/fs/cgroup")]
    pub cgroup: PathBuf,
    /// Only list what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Remove even if an agent runs, or if pods are still running: standalone pods are ended. With --kube-proxy-leftovers: even
    /// if kube-proxy runs
    #[arg(long)]
    pub force: bool,
}

/// The flags of `offline`.
#[derive(Clone, Debug, clap::Args)]
pub struct Offline {
    /// State folder of the node
    #[arg(long)]
    pub state_dir: PathBuf,
}

/// The folder of a node's pins, by default the node's folder in bpffs.
fn bpffs(given: Option<&PathBuf>, node: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| node_flags::pins_of(node))
}

/// Checks a node's name, which becomes part of paths: Kubernetes allows subdomains of DNS (RFC 1123).
fn check_name(node: &str) -> Result<()> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    ensure!(
        node.len() <= 253 && node.split('.').all(is_label),
        "--node {node:?}: use letters, digits and dashes, in parts of 1 to 63 that are separated by dots"
    );
    Ok(())
}

/// Checks that the process is root.
fn check_root(verb: &str) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "loading programs and changing routes need root; run: sudo dormouse-agent {verb} ..."
    );
    Ok(())
}

/// Runs the command of the command line.
pub fn execute(cli: Cli) -> Result<ExitCode> {
    match cli.verb {
        Verb::Run(run) => {
            run.validate()?;
            check_root("run")?;
            start::run(*run)?;
        }
        Verb::InstallCni(flags) => {
            install_cni::install_cni(&flags, &mut std::io::stdout().lock())?;
        }
        Verb::Uninstall(flags) => {
            check_root("uninstall")?;
            uninstall::run(&flags, &mut std::io::stdout().lock())?;
        }
        Verb::Doctor(flags) => return Ok(answered(|out| doctor::doctor(&flags, out))),
        Verb::Get(flags) => return Ok(answered(|out| get::get(&flags, out))),
        Verb::Flows(flags) => return Ok(answered(|out| flows::flows(&flags, out))),
        Verb::Explain(flags) => return Ok(answered(|out| explain::explain(&flags, out))),
        Verb::Deny(flags) => return Ok(answered(|out| deny::deny(&flags, out))),
        Verb::Offline(flags) => {
            check_root("offline")?;
            crate::offline::serve(&flags.state_dir)?;
        }
        Verb::PodInit(init) => become_pod(&init)?,
        Verb::PodLogs(arguments) => write_logs(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an answer to stdout, or the error to stderr, and returns the exit code.
fn answered(answer: impl FnOnce(&mut dyn Write) -> Result<Exit, InspectError>) -> ExitCode {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let answer = answer(&mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    let exit = answer.unwrap_or_else(|error| {
        error.print();
        error.exit
    });
    // A failed flush has been reported already: the writer must not try again when it is dropped.
    drop(out.into_parts());
    exit.into()
}
