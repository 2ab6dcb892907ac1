//! The command line of `dormouse-agent`: each flag of `run` has a `DORMOUSE_*` variable and a default for a single node.

mod explain;
mod flows;
mod get;
mod install_cni;
mod node_flags;
mod start;
mod uninstall;

use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use dormouse_agent_inspect::{Exit, InspectError};
use dormouse_agent_pod::{Ipv4Range, NodePrefix, SYSCTLS_DEFAULT};

use crate::profile::{self, Profile};
use crate::runtime::init::{PodInit, become_pod};
use crate::runtime::logs::{LogFlags, PodLogs, write_logs};
use crate::services_sync;
use crate::source::kubernetes::{self, Access, AccessError};

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
      --address 2001:db8:d0:0:0:1:0:1 --control http://[2001:db8:d0::c]:7443
  Serve the Services of a Kubernetes cluster, beside its kubelet:
    sudo dormouse-agent run --node n1 --runtime none --prefix 2001:db8:d0:0:0:1::/96 \\
      --address 2001:db8:d0:0:0:1:0:1 --api-server https://[2001:db8:d0::c]:6443 --kubeconfig agent.conf
  Show the Services of the node, and explain a packet's path:
    dormouse-agent get services -A
    sudo dormouse-agent explain flow 2001:db8:7::17 service/shop/web tcp/80
  Remove Dormouse from this machine; list first what would be removed:
    sudo dormouse-agent uninstall --node n1 --dry-run
    sudo dormouse-agent uninstall --node n1

Stopping the agent (SIGTERM) leaves the data path and the pods running; the next agent takes them over.";

/// The agent's commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the agent on this node until SIGTERM or SIGINT
    Run(Box<Run>),
    /// Copy dormouse-cni and dormouse-agent to the folder of the container runtime's plugins
    InstallCni(install_cni::InstallCni),
    /// Remove everything that Dormouse created on this machine: links, routes, programs, files
    Uninstall(Uninstall),
    /// List Services, apps, backends, drops, pods, addresses or neighbours of this node
    Get(get::Get),
    /// List the connection tracking entries (flows) of this node
    Flows(Box<flows::Flows>),
    /// Explain a packet's path, an address or a drop code
    Explain(explain::Explain),
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

/// The runtime of the node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// The agent runs each pod as a process; dormouse-cni connects it to the network
    Standalone,
    /// The agent runs no pods; another runtime (kubelet) does
    None,
}

/// The forwarder of packets between the cluster's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forwarding {
    /// The eBPF data path: uses the host's routes and neighbours, bypasses its netfilter hooks
    Direct,
    /// The host's network stack
    Kernel,
}

/// The flags of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// Name of this node
    #[arg(long, env = "DORMOUSE_NODE")]
    pub node: String,
    /// Interface to the network outside of the node; never added to a bridge
    #[arg(long, env = "DORMOUSE_UPLINK", default_value = "eth0")]
    pub uplink: String,
    /// First bridge of the pods; created if it does not exist
    #[arg(long, env = "DORMOUSE_BRIDGE", default_value = "dormouse0", value_parser = bridge)]
    pub bridge: String,
    /// Kind of network, which decides how the node's prefix is delivered and pods are announced
    #[arg(
        long,
        env = "DORMOUSE_NETWORK_PROFILE",
        default_value = profile::DEFAULT,
        value_parser = network_profile()
    )]
    pub network_profile: &'static Profile,
    /// IPv6 prefix routed to this node: a /96 like 2001:db8:d0:0:0:1::/96, or what the cloud delegates (AWS: a /80), of which the first /96 is used
    #[arg(long, env = "DORMOUSE_PREFIX")]
    pub prefix: String,
    /// IPv4 range routed to this node, like 10.244.7.0/24: pods get an IPv4 address of it besides the IPv6 one
    #[arg(long, env = "DORMOUSE_PREFIX4")]
    pub prefix4: Option<Ipv4Range>,
    /// IPv6 address of this node, on the uplink
    #[arg(long, env = "DORMOUSE_ADDRESS")]
    pub address: Ipv6Addr,
    /// URL of control's fleet stream, like http://[2001:db8:d0::c]:7443; without it, entries have no lease and never expire
    #[arg(long, env = "DORMOUSE_CONTROL")]
    pub control: Option<String>,
    /// Folder for the state that outlives the agent (address journal, records of standalone pods)
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    pub state_dir: PathBuf,
    /// Unix socket on which the agent serves dormouse-cni
    #[arg(
        long,
        env = "DORMOUSE_SOCKET",
        default_value = "/run/dormouse/agent.sock"
    )]
    pub socket: PathBuf,
    /// The network configuration of container runtimes.
    #[command(flatten)]
    pub conflist: install_cni::ConflistFlags,
    /// Folder in bpffs in which maps and links are pinned [default: /sys/fs/bpf/dormouse/NODE]
    #[arg(long, env = "DORMOUSE_BPFFS")]
    pub bpffs: Option<PathBuf>,
    /// cgroup (v2) of the node: socket programs attach to it, standalone pods run in children of it
    #[arg(long, env = "DORMOUSE_CGROUP", default_value = "/sys/fs/cgroup")]
    pub cgroup: PathBuf,
    /// Folder of the network's sysctls; where /proc/sys is read-only, as in a container, another place at which it can be written
    #[arg(long, env = "DORMOUSE_SYSCTLS", default_value = SYSCTLS_DEFAULT)]
    pub sysctls: PathBuf,
    /// Capacity of the flow table, in flows (a connection takes two, one per direction); about 200 bytes each
    #[arg(long, env = "DORMOUSE_FLOWS_MAX", default_value_t = dormouse_ebpf::flow::FLOWS_MAX)]
    pub flows_max: u32,
    /// Folder of manifests (YAML or JSON: Service, EndpointSlice, Node) to serve; watched for changes
    #[arg(long, env = "DORMOUSE_MANIFESTS", conflicts_with_all = ["api_servers", "kubeconfig"])]
    pub manifests: Option<PathBuf>,
    /// URL of a Kubernetes API server whose Services to serve, like https://[2001:db8:d0::c]:6443; several are tried in turn.
    /// Give an address of the server itself: that of the Service `kubernetes` is served by this agent
    #[arg(
        long = "api-server",
        env = "DORMOUSE_API_SERVERS",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub api_servers: Vec<String>,
    /// File with the credentials for the API server, and its URL unless --api-server is given; read again when it is refused
    #[arg(long, env = "DORMOUSE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Serve the Services of the cluster in whose pod the agent runs, with the pod's service account. Without --api-server,
    /// the server is that of KUBERNETES_SERVICE_HOST, which can be reached while kube-proxy or an earlier agent serves it
    #[arg(long, env = "DORMOUSE_IN_CLUSTER")]
    pub in_cluster: bool,
    /// Folder of the pod's service account (`token`, `ca.crt`); used with --in-cluster, and with --api-server if it exists
    #[arg(
        long,
        env = "DORMOUSE_SERVICE_ACCOUNT",
        value_name = "FOLDER",
        default_value = kubernetes::SERVICE_ACCOUNT
    )]
    pub service_account: PathBuf,
    /// Range of cluster IPs, like fd00:20::/112 or 10.96.0.0/16; repeat it for the other family
    #[arg(
        long = "service-range",
        env = "DORMOUSE_SERVICE_RANGES",
        value_delimiter = ','
    )]
    pub service_ranges: Vec<String>,
    /// Range of the cluster's pods, one per family; other sources that connect to a cluster IP are masqueraded
    #[arg(long = "pod-range", env = "DORMOUSE_POD_RANGES", value_delimiter = ',')]
    pub pod_ranges: Vec<String>,
    /// Forwarder of packets between pods of --pod-range
    #[arg(
        long,
        env = "DORMOUSE_FORWARDING",
        value_enum,
        default_value = "direct"
    )]
    pub forwarding: Forwarding,
    /// IPv4 address of this node, if it has one
    #[arg(long, env = "DORMOUSE_ADDRESS4")]
    pub address4: Option<Ipv4Addr>,
    /// Addresses on which node ports are served: `primary`, or ranges that select addresses of the node
    #[arg(
        long,
        env = "DORMOUSE_NODE_PORT_ADDRESSES",
        value_delimiter = ',',
        default_value = "primary"
    )]
    pub node_port_addresses: Vec<String>,
    /// Masquerade every source that connects to a cluster IP
    #[arg(long, env = "DORMOUSE_MASQUERADE_ALL")]
    pub masquerade_all: bool,
    /// Refuse every source at load balancer addresses whose Service lists source ranges, but no valid one of the
    /// address's family; kube-proxy admits every source there
    #[arg(long, env = "DORMOUSE_STRICT_SOURCE_RANGES")]
    pub strict_source_ranges: bool,
    /// Address and port of the service proxy's health server (`/healthz`, `/livez`)
    #[arg(long, env = "DORMOUSE_HEALTH", default_value = "[::]:10256")]
    pub health: SocketAddr,
    /// Runtime of the node's pods
    #[arg(
        long,
        env = "DORMOUSE_RUNTIME",
        value_enum,
        default_value = "standalone"
    )]
    pub runtime: RuntimeKind,
    /// Plugin binary that connects standalone pods to the network
    #[arg(
        long,
        env = "DORMOUSE_CNI",
        default_value = "/opt/cni/bin/dormouse-cni"
    )]
    pub cni: PathBuf,
    /// Address and port of the metrics server
    #[arg(long, env = "DORMOUSE_METRICS", default_value = "[::]:10249")]
    pub metrics: SocketAddr,
    /// Maximum number of pods on this node
    #[arg(long, env = "DORMOUSE_PODS_MAX", default_value_t = 500)]
    pub pods_max: u32,
    /// The bounds of the pods' logs.
    #[command(flatten)]
    pub logs: LogFlags,
}

/// The flags of `uninstall`.
#[derive(Clone, Debug, clap::Args)]
pub struct Uninstall {
    /// Name of the node
    #[arg(long, env = "DORMOUSE_NODE")]
    pub node: String,
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
    /// Remove even if an agent runs, or if pods are still running: standalone pods are ended
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

/// Length of the prefix that a node uses of the delegated one, in bits.
const NODE_PREFIX_LENGTH: u8 = 96;

/// Maximum length of the first bridge's name, in bytes.
const BRIDGE_LEN_MAX: usize = 12;

/// Parses the name of a network profile.
fn network_profile() -> impl TypedValueParser<Value = &'static Profile> {
    let names = PossibleValuesParser::new(profile::PROFILES.each_ref().map(|profile| profile.name));
    names.try_map(|name| profile::named(&name).ok_or("no such profile"))
}

/// Checks the first bridge's name, which must leave room for the numbers of further bridges.
fn bridge(name: &str) -> Result<String, String> {
    if (1..=BRIDGE_LEN_MAX).contains(&name.len()) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "use a name of 1 to {BRIDGE_LEN_MAX} bytes: the kernel allows 15, and further bridges append a number"
    ))
}

/// The folder of a node's pins, by default the node's folder in bpffs.
fn bpffs(given: Option<&PathBuf>, node: &str) -> PathBuf {
    given.cloned().unwrap_or_else(|| node_flags::pins_of(node))
}

impl Run {
    /// The prefix as given by `--prefix`, before it is cut to the node's /96.
    fn delivered(&self) -> Result<NodePrefix> {
        self.prefix.parse().map_err(|error| {
            anyhow::anyhow!(
                "--prefix {:?}: {error}; write it like 2001:db8:d0:0:0:1::/96",
                self.prefix
            )
        })
    }

    /// Checks what clap cannot, before anything on the machine is changed. Returns the node prefix.
    pub fn validate(&self) -> Result<NodePrefix> {
        check_name(&self.node)?;
        let prefix = self.delivered()?;
        let profile = self.network_profile;
        ensure!(
            profile.prefix_lengths.contains(&prefix.length()),
            "--prefix {}: --network-profile {} needs a prefix length of {} to {} bits; write it like 2001:db8:d0:0:0:1::/96",
            self.prefix,
            profile.name,
            profile.prefix_lengths.start(),
            profile.prefix_lengths.end()
        );
        let prefix = NodePrefix::new(prefix.network(), NODE_PREFIX_LENGTH)?;
        ensure!(self.pods_max > 0, "--pods-max 0: use 1 or more");
        self.node_facts()?;
        // By value: a variable that is `false` is present, too.
        let other = match (&self.manifests, &self.kubeconfig) {
            (Some(_), _) => Some("--manifests"),
            (_, Some(_)) => Some("--kubeconfig"),
            (None, None) => None,
        };
        if let Some(other) = other.filter(|_| self.in_cluster) {
            anyhow::bail!("{other} cannot be used with --in-cluster: give one source of Services");
        }
        self.access()?;
        self.conflist.validate()?;
        if let Some(url) = &self.control {
            dormouse_fleet::client::endpoint(url)?;
        }
        if self.runtime == RuntimeKind::Standalone {
            ensure!(
                self.cni.is_file(),
                "--cni {}: no such file; install the dormouse-cni binary there, or give --runtime none",
                self.cni.display()
            );
        }
        Ok(prefix)
    }

    /// The Kubernetes API servers and the credentials, if Services come from there.
    fn access(&self) -> Result<Option<Access>, AccessError> {
        let variable = |name: &str| std::env::var(name).ok();
        let host = variable("KUBERNETES_SERVICE_HOST");
        let port = variable("KUBERNETES_SERVICE_PORT");
        Access::new(kubernetes::Flags {
            servers: &self.api_servers,
            kubeconfig: self.kubeconfig.as_deref(),
            in_cluster: self.in_cluster,
            service_account: &self.service_account,
            service: [host.as_deref(), port.as_deref()],
        })
    }

    /// The node and its cluster as Services need them, from the flags.
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
            let prefix = run.validate()?;
            check_root("run")?;
            start::run(*run, prefix)?;
        }
        Verb::InstallCni(flags) => {
            install_cni::install_cni(&flags, &mut std::io::stdout().lock())?;
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
    fn services_come_from_one_source() {
        for (one, other) in [
            (["--manifests", "/m"], &["--api-server", "http://a:1"][..]),
            (["--manifests", "/m"], &["--kubeconfig", "/c"]),
        ] {
            let both = ["dormouse-agent", "run"].iter().chain(&one).chain(other);
            let error = Cli::try_parse_from(both).unwrap_err().to_string();
            assert!(
                error.contains(one[0]) && error.contains(other[0]),
                "{error}"
            );
        }
        let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
        for other in ["--manifests", "--kubeconfig"] {
            let both = run(&[&good[..], &[other, "/m", "--in-cluster"]].concat());
            let error = both.validate().unwrap_err().to_string();
            assert!(
                error.contains(other) && error.contains("--in-cluster"),
                "{error}"
            );
        }
        let run = run(&[&good[..], &["--api-server", "http://a:1,ftp://b"]].concat());
        let error = run.validate().unwrap_err().to_string();
        assert!(error.contains("--api-server \"ftp://b\""), "{error}");
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
        for name in ["n1", "ip-10-0-0-1.eu-west-1.compute.internal"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "a..b", "a/b", "-a", "a.-b", "a_b"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("--node"), "{error}");
        }
        assert!(wrong(&["--prefix", "2001:db8::/64"]).contains("--prefix"));
        let good = ["--prefix", "2001:db8:d0:0:0:1::/96"];
        assert!(wrong(&[&good[..], &["--control", "no url"]].concat()).contains("no url"));
        assert!(wrong(&[&good[..], &["--pods-max", "0"]].concat()).contains("--pods-max"));
        for name in ["10-dormouse.conf", ".conflist", "../x.conflist"] {
            let error = wrong(&[&good[..], &["--cni-conf-name", name]].concat());
            assert!(error.contains("--cni-conf-name"), "{error}");
        }
        let mut run = run(&[&good[..], &["--cni", "/nowhere"]].concat());
        run.runtime = RuntimeKind::Standalone;
        assert!(run.validate().unwrap_err().to_string().contains("/nowhere"));
    }
}
