//! What the agent is told on its command line: every flag has a `DORMOUSE_*` twin and a default that suits one node.

mod explain;
mod flows;
mod get;
mod start;
mod uninstall;
mod which;

use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

use crate::profile::{self, Profile};
use crate::runtime::init::{PodInit, become_pod};
use crate::services_sync;
use dormouse_agent_inspect::{Exit, Trouble};
use dormouse_agent_pod::{Ipv4Range, NodePrefix};

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
  What it serves, and why a packet goes its way:
    dormouse-agent get services -A
    sudo dormouse-agent explain flow 2001:db8:7::17 service/shop/web tcp/80
  Take it all off this machine again; first only list what would go:
    sudo dormouse-agent uninstall --node n1 --dry-run
    sudo dormouse-agent uninstall --node n1

Stopping the agent (SIGTERM) leaves the data path and the pods running; the next one takes them over.";

/// What the agent can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run this node until SIGTERM or SIGINT
    Run(Box<Run>),
    /// Take everything that Dormouse made off this machine: links, routes, programs, files, and nothing else
    Uninstall(Uninstall),
    /// What this node serves, drops and knows
    Get(get::Get),
    /// The connections that this node remembers
    Flows(Box<flows::Flows>),
    /// Why a packet goes its way; what an address is; what a code means
    Explain(explain::Explain),
    /// Serve one request of the plugin while no agent runs (dormouse-cni calls this itself)
    #[command(hide = true)]
    Offline(Offline),
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

/// Who forwards packets between the cluster's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forwarding {
    /// The data path, by the host's routes, but past its netfilter hooks
    Direct,
    /// The host's network stack, as everything else
    Kernel,
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
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0", value_parser = bridge)]
    pub bridge: String,
    /// How the network delivers the node's prefix
    #[arg(
        long,
        env = "DORMOUSE_NETWORK_PROFILE",
        default_value = profile::DEFAULT,
        value_parser = network_profile()
    )]
    pub network_profile: &'static Profile,
    /// The /96 that this node owns, as 2001:db8:d0:0:0:1::/96; or what a cloud delegates, as AWS a /80: its first /96
    #[arg(long, env = "DORMOUSE_PREFIX")]
    pub prefix: String,
    /// The IPv4 network that this node owns, as 10.244.7.0/24: each pod gets an address of it beside its IPv6 one
    #[arg(long, env = "DORMOUSE_PREFIX4")]
    pub prefix4: Option<Ipv4Range>,
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
    /// Connections that the kernel remembers, each direction by itself; about 200 bytes each
    #[arg(long, env = "DORMOUSE_FLOWS_MAX", default_value_t = dormouse_ebpf::flow::FLOWS_MAX)]
    pub flows_max: u32,
    /// A folder of manifests (YAML or JSON: Service, EndpointSlice, Node) to serve, watched for changes
    #[arg(long, env = "DORMOUSE_MANIFESTS")]
    pub manifests: Option<PathBuf>,
    /// A range that cluster IPs are taken from, as fd00:20::/112 or 10.96.0.0/16; may be given for both families
    #[arg(
        long = "service-range",
        env = "DORMOUSE_SERVICE_RANGES",
        value_delimiter = ','
    )]
    pub service_ranges: Vec<String>,
    /// The range of the cluster's pods, by family: others that call a cluster IP are hidden behind the node's address
    #[arg(long = "pod-range", env = "DORMOUSE_POD_RANGES", value_delimiter = ',')]
    pub pod_ranges: Vec<String>,
    /// Who forwards packets between pods, both of --pod-range
    #[arg(
        long,
        env = "DORMOUSE_FORWARDING",
        value_enum,
        default_value = "direct"
    )]
    pub forwarding: Forwarding,
    /// The node's own IPv4 address, if it has one
    #[arg(long, env = "DORMOUSE_ADDRESS4")]
    pub address4: Option<Ipv4Addr>,
    /// Where node ports answer: `primary`, or ranges that the node's addresses must be in
    #[arg(
        long,
        env = "DORMOUSE_NODE_PORT_ADDRESSES",
        value_delimiter = ',',
        default_value = "primary"
    )]
    pub node_port_addresses: Vec<String>,
    /// Hide everybody who calls a cluster IP behind the node's address
    #[arg(long, env = "DORMOUSE_MASQUERADE_ALL")]
    pub masquerade_all: bool,
    /// Refuse every source at load balancer addresses whose Service lists source ranges, but no valid one of the
    /// address's family; kube-proxy admits every source there
    #[arg(long, env = "DORMOUSE_STRICT_SOURCE_RANGES")]
    pub strict_source_ranges: bool,
    /// Where the service proxy tells its own health (`/healthz`, `/livez`)
    #[arg(long, env = "DORMOUSE_HEALTH", default_value = "[::]:10256")]
    pub health: SocketAddr,
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
    /// The node's state folder
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    pub state_dir: PathBuf,
    /// The socket that dormouse-cni calls
    #[arg(
        long,
        env = "DORMOUSE_SOCKET",
        default_value = "/run/dormouse/agent.sock"
    )]
    pub socket: PathBuf,
    /// The bridge of the pods
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0")]
    pub bridge: String,
    /// The node's cgroup (v2)
    #[arg(long, env = "DORMOUSE_CGROUP", default_value = "/sys/fs/cgroup")]
    pub cgroup: PathBuf,
    /// Only list what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Also while an agent runs, and under pods that live
    #[arg(long)]
    pub force: bool,
}

/// The flags of `offline`.
#[derive(Clone, Debug, clap::Args)]
pub struct Offline {
    /// Where the node's state lives
    #[arg(long)]
    pub state_dir: PathBuf,
}

/// What a node owns of what it is given, in bits.
const NODE_PREFIX_LENGTH: u8 = 96;

/// Longest name of the first bridge, in bytes.
const BRIDGE_LEN_MAX: usize = 12;

/// The profiles by name.
fn network_profile() -> impl TypedValueParser<Value = &'static Profile> {
    let names = PossibleValuesParser::new(profile::PROFILES.each_ref().map(|profile| profile.name));
    names.try_map(|name| profile::named(&name).ok_or("there is no such profile"))
}

/// A bridge's name, which has to leave room for the numbers of those after it.
fn bridge(name: &str) -> Result<String, String> {
    if (1..=BRIDGE_LEN_MAX).contains(&name.len()) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "a bridge's name has 1 to {BRIDGE_LEN_MAX} bytes: the kernel takes 15, and further bridges have a number behind"
    ))
}

/// Where a node's pins are unless told otherwise.
fn bpffs(given: Option<&PathBuf>, node: &str) -> PathBuf {
    given
        .cloned()
        .unwrap_or_else(|| PathBuf::from("/sys/fs/bpf/dormouse").join(node))
}

impl Run {
    /// The prefix as it was given.
    fn delivered(&self) -> Result<NodePrefix> {
        self.prefix.parse().map_err(|error| {
            anyhow::anyhow!(
                "--prefix {:?}: {error}; write it like 2001:db8:d0:0:0:1::/96",
                self.prefix
            )
        })
    }

    /// Checks what clap cannot, before anything is touched. Returns the node prefix.
    pub fn validate(&self) -> Result<NodePrefix> {
        check_name(&self.node)?;
        let prefix = self.delivered()?;
        let profile = self.network_profile;
        ensure!(
            profile.prefix_lengths.contains(&prefix.length()),
            "--prefix {}: with --network-profile {} a node is given a prefix of {} to {} bits; write it like 2001:db8:d0:0:0:1::/96",
            self.prefix,
            profile.name,
            profile.prefix_lengths.start(),
            profile.prefix_lengths.end()
        );
        let prefix = NodePrefix::new(prefix.network(), NODE_PREFIX_LENGTH)?;
        ensure!(
            self.pods_max > 0,
            "--pods-max 0: a node that takes no pods has nothing to do"
        );
        self.node_facts()?;
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

    /// What the flags say of the node and its cluster, as Services need it.
    fn node_facts(&self) -> Result<dormouse_agent_services::Node> {
        let ranges = |flag: &str, texts: &[String]| {
            services_sync::prefixes(texts).map_err(|text| {
                anyhow::anyhow!("{flag} {text}: write a range like fd00:20::/112 or 10.96.0.0/16")
            })
        };
        let node_ports = services_sync::node_port_addresses(&self.node_port_addresses);
        let primary = [
            Some(IpAddr::V6(self.address)),
            self.address4.map(IpAddr::V4),
        ];
        Ok(dormouse_agent_services::Node {
            name: self.node.clone(),
            addresses: dormouse_agent_services::NodeAddresses {
                primary: primary.into_iter().flatten().collect(),
                local: Vec::new(),
            },
            pod_ranges: ranges("--pod-range", &self.pod_ranges)?,
            service_ranges: ranges("--service-range", &self.service_ranges)?,
            node_port_addresses: node_ports.map_err(|text| {
                anyhow::anyhow!("--node-port-addresses {text}: write `primary` or ranges")
            })?,
            masquerade_all: self.masquerade_all,
        })
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
pub fn execute(cli: Cli) -> Result<ExitCode> {
    match cli.verb {
        Verb::Run(run) => {
            let prefix = run.validate()?;
            check_root("run")?;
            start::run(*run, prefix)?;
        }
        Verb::Uninstall(flags) => {
            check_name(&flags.node)?;
            check_root("uninstall")?;
            uninstall::uninstall(&flags, &mut std::io::stdout().lock())?;
        }
        Verb::Get(flags) => return Ok(answered(|out| get::get(&flags, out))),
        Verb::Flows(flags) => return Ok(answered(|out| flows::flows(&flags, out))),
        Verb::Explain(flags) => return Ok(answered(|out| explain::explain(&flags, out))),
        Verb::Offline(flags) => {
            check_root("offline")?;
            crate::offline::serve(&flags.state_dir)?;
        }
        Verb::PodInit(init) => become_pod(&init)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an answer to stdout, or what went wrong to stderr, and says how the process ends.
fn answered(answer: impl FnOnce(&mut dyn Write) -> Result<Exit, Trouble>) -> ExitCode {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let answer = answer(&mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    let exit = answer.unwrap_or_else(|trouble| {
        trouble.print();
        trouble.exit
    });
    // What could not be written was said; it is not tried again when the writer goes.
    drop(out.into_parts());
    exit.into()
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
    fn of_a_delegated_prefix_the_node_owns_the_first_96() {
        let given = |profile: &str, prefix: &str| {
            run(&["--network-profile", profile, "--prefix", prefix]).validate()
        };
        let own: NodePrefix = "2001:db8:d0:0:1::/96".parse().unwrap();
        assert_eq!(given("aws", "2001:db8:d0:0:1::/80").unwrap(), own);
        assert_eq!(given("aws", "2001:db8:d0:0:1::/96").unwrap(), own);
        assert!(given("routed", "2001:db8:d0::/64").is_ok());
        for (profile, prefix) in [
            ("aws", "2001:db8:d0::/64"),
            ("gcp", "2001:db8:d0:0:1::/80"),
            ("on-link", "2001:db8:d0:0:1::/80"),
        ] {
            let error = given(profile, prefix).unwrap_err().to_string();
            assert!(
                error.contains(&format!("--network-profile {profile}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_network_that_cannot_be_handed_out_is_refused_with_the_one_that_can() {
        let arguments = ["dormouse-agent", "run", "--prefix4", "10.244.7.1/24"];
        let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
        assert!(error.contains("--prefix4"), "{error}");
        assert!(error.contains("10.244.7.0/24"), "{error}");
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
