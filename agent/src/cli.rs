//! What the agent is told on its command line: every flag has a `DORMOUSE_*` twin and a default that suits one node.

mod start;
mod uninstall;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};

use crate::pod::NodePrefix;
use crate::runtime::init::{PodInit, become_pod};

/// The node's half of Dormouse: data path, pod network, and, standalone, the pods themselves
#[derive(Debug, Parser)]
#[command(name = "dormouse-agent", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to log, as tracing's filters have it
    #[arg(long, env = "DORMOUSE_LOG", default_value = "info", global = true)]
    pub log: String,
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  One node that follows control:
    sudo dormouse-agent run --node n1 --uplink eth0 --prefix 2001:db8:d0:0:0:1::/96 \\
      --address 2001:db8:d0:0:0:1:0:1 --control http://[2001:db8:d0::c]:7443
  Take the data path off this machine again:
    sudo dormouse-agent uninstall --node n1

Stopping the agent (SIGTERM) leaves the data path and the pods running; the next one takes them over.";

/// What the agent can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run this node until SIGTERM or SIGINT
    Run(Box<Run>),
    /// Detach every program and remove every pin of this node; its pods run on without the data path
    Uninstall(Uninstall),
    /// Become a pod's command (the agent calls this itself)
    #[command(hide = true)]
    PodInit(PodInit),
}

/// How pods are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// The agent runs each pod as a process, wired by dormouse-cni
    Standalone,
    /// Somebody else does (kubelet)
    None,
}

/// The flags of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The node's name
    #[arg(long, env = "DORMOUSE_NODE")]
    pub node: String,
    /// The interface to the outside; it is never made a bridge port
    #[arg(long, env = "DORMOUSE_UPLINK", default_value = "eth0")]
    pub uplink: String,
    /// The bridge of the pods; made when it does not exist
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0")]
    pub bridge: String,
    /// The /96 that this node owns, as 2001:db8:d0:0:0:1::/96
    #[arg(long, env = "DORMOUSE_PREFIX")]
    pub prefix: String,
    /// The node's own address
    #[arg(long, env = "DORMOUSE_ADDRESS")]
    pub address: Ipv6Addr,
    /// Control's fleet stream, as http://[2001:db8:d0::c]:7443; without it entries last for ever
    #[arg(long, env = "DORMOUSE_CONTROL")]
    pub control: Option<String>,
    /// Where the node's state lives
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    pub state_dir: PathBuf,
    /// The socket that dormouse-cni calls
    #[arg(
        long,
        env = "DORMOUSE_SOCKET",
        default_value = "/run/dormouse/agent.sock"
    )]
    pub socket: PathBuf,
    /// Where maps and links are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    pub bpffs: Option<PathBuf>,
    /// The node's cgroup (v2): its pods' connections are steered, standalone pods get children of it
    #[arg(long, env = "DORMOUSE_CGROUP", default_value = "/sys/fs/cgroup")]
    pub cgroup: PathBuf,
    /// Who runs the pods
    #[arg(
        long,
        env = "DORMOUSE_RUNTIME",
        value_enum,
        default_value = "standalone"
    )]
    pub runtime: RuntimeKind,
    /// The plugin that wires standalone pods
    #[arg(
        long,
        env = "DORMOUSE_CNI",
        default_value = "/opt/cni/bin/dormouse-cni"
    )]
    pub cni: PathBuf,
    /// Where metrics are served
    #[arg(long, env = "DORMOUSE_METRICS", default_value = "[::]:10249")]
    pub metrics: SocketAddr,
    /// How many pods the node takes
    #[arg(long, env = "DORMOUSE_PODS_MAX", default_value_t = 500)]
    pub pods_max: u32,
}

/// The flags of `uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub struct Uninstall {
    /// The node's name
    #[arg(long, env = "DORMOUSE_NODE")]
    pub node: String,
    /// Where maps and links are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    pub bpffs: Option<PathBuf>,
}

/// Where a node's pins are unless told otherwise.
fn bpffs(given: Option<&PathBuf>, node: &str) -> PathBuf {
    given
        .cloned()
        .unwrap_or_else(|| PathBuf::from("/sys/fs/bpf/dormouse").join(node))
}

impl Run {
    /// Checks what clap cannot, before anything is touched. Returns the node prefix.
    pub fn validate(&self) -> Result<NodePrefix> {
        check_name(&self.node)?;
        let prefix: NodePrefix = self.prefix.parse().map_err(|error| {
            anyhow::anyhow!(
                "--prefix {:?}: {error}; write it like 2001:db8:d0:0:0:1::/96",
                self.prefix
            )
        })?;
        ensure!(
            prefix.length() == 96,
            "--prefix {}: a node owns a /96; write it like 2001:db8:d0:0:0:1::/96",
            self.prefix
        );
        ensure!(
            self.pods_max > 0,
            "--pods-max 0: a node that takes no pods has nothing to do"
        );
        if let Some(url) = &self.control {
            dormouse_fleet::client::endpoint(url)?;
        }
        if self.runtime == RuntimeKind::Standalone {
            ensure!(
                self.cni.is_file(),
                "--cni {}: there is no such file; standalone pods are wired by the dormouse-cni binary",
                self.cni.display()
            );
        }
        Ok(prefix)
    }
}

/// A node's name is part of paths.
fn check_name(node: &str) -> Result<()> {
    let named = (1..=63).contains(&node.len())
        && node
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    ensure!(
        named,
        "--node {node:?}: a node's name is up to 63 letters, digits and dashes"
    );
    Ok(())
}

/// Whether the agent may do what it has to.
fn check_root(verb: &str) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "programs, namespaces and routes need root; run as root: sudo dormouse-agent {verb} ..."
    );
    Ok(())
}

/// Does what the command line says.
pub fn execute(cli: Cli) -> Result<()> {
    match cli.verb {
        Verb::Run(run) => {
            let prefix = run.validate()?;
            check_root("run")?;
            start::run(*run, prefix)
        }
        Verb::Uninstall(flags) => {
            check_name(&flags.node)?;
            check_root("uninstall")?;
            uninstall::uninstall(&flags)
        }
        Verb::PodInit(init) => become_pod(&init),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run(arguments: &[&str]) -> Run {
        let fixed = [
            "dormouse-agent",
            "run",
            "--node",
            "n1",
            "--address",
            "2001:db8::1",
        ];
        let all = fixed
            .into_iter()
            .chain(["--runtime", "none"])
            .chain(arguments.iter().copied());
        match Cli::try_parse_from(all).unwrap().verb {
            Verb::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_good_command_line_is_taken() {
        let run = run(&[
            "--prefix",
            "2001:db8:d0:0:0:1::/96",
            "--control",
            "http://[::1]:7443",
        ]);
        run.validate().unwrap();
        assert_eq!(bpffs(None, "n1"), PathBuf::from("/sys/fs/bpf/dormouse/n1"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_flag() {
        let wrong = |arguments: &[&str]| run(arguments).validate().unwrap_err().to_string();
        assert!(check_name("..").unwrap_err().to_string().contains("--node"));
        assert!(wrong(&["--prefix", "2001:db8::/64"]).contains("--prefix"));
        let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
        assert!(wrong(&[&good[..], &["--control", "no url"]].concat()).contains("no url"));
        assert!(wrong(&[&good[..], &["--pods-max", "0"]].concat()).contains("--pods-max"));
        let mut run = run(&[&good[..], &["--cni", "/nowhere"]].concat());
        run.runtime = RuntimeKind::Standalone;
        assert!(run.validate().unwrap_err().to_string().contains("/nowhere"));
    }
}
