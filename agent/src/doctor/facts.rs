//! What is known about the machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use dormouse_agent_datapath::Attached;
use dormouse_agent_pod::NodePrefix;
use dormouse_agent_services::Prefix;

use crate::leftovers::Found;
use crate::profile::Profile;

/// What is known about the machine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kernel and its file systems.
    pub kernel: KernelFacts,
    /// Name of the uplink.
    pub uplink: String,
    /// The uplink; none: there is no such interface.
    pub link: Option<LinkFacts>,
    /// The network profile.
    pub profile: &'static Profile,
    /// Settings of the kernel.
    pub sysctls: SysctlFacts,
    /// The settings of the last agent; none: no agent has been ready on this machine.
    pub pods: Option<PodFacts>,
    /// The agent and its data path.
    pub agent: AgentFacts,
    /// The agent's stream to control.
    pub stream: StreamFacts,
    /// kube-proxy, and what it left.
    pub kube_proxy: KubeProxyFacts,
    /// The folder of network configurations.
    pub conflists: ConflistFacts,
    /// The programs of others on links, by link.
    pub programs: Vec<(String, Attached)>,
}

/// The kernel and its file systems.
#[derive(Clone, Debug)]
pub struct KernelFacts {
    /// Its release, like `6.18.0-amd64`.
    pub release: String,
    /// Whether it has type information.
    pub has_btf: bool,
    /// The cgroup of the node.
    pub cgroup: PathBuf,
    /// Whether the cgroup is of version 2.
    pub has_cgroup2: bool,
    /// Whether a BPF file system is mounted.
    pub has_bpffs: bool,
    /// Whether the clock is synchronized; none: the kernel does not say.
    pub is_synchronized: Option<bool>,
}

/// The uplink.
#[derive(Clone, Debug)]
pub struct LinkFacts {
    /// Whether it is up.
    pub is_up: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Its networks, without link-local ones.
    pub networks: Vec<Prefix>,
    /// Whether there is a default route for IPv6.
    pub has_default_route: bool,
}

/// Settings of the kernel; none: the file cannot be read.
#[derive(Clone, Debug, Default)]
pub struct SysctlFacts {
    /// `net.ipv6.conf.all.forwarding`.
    pub forwarding6: Option<u8>,
    /// `net.ipv4.ip_forward`.
    pub forwarding4: Option<u8>,
    /// `accept_ra` of the uplink.
    pub accept_ra: Option<u8>,
    /// `rp_filter` in force, by interface: the uplink and the bridges of pods.
    pub rp_filter: BTreeMap<String, u8>,
}

/// The settings of the last agent.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// The prefix of the pods.
    pub prefix: NodePrefix,
    /// What the network delivers to the node.
    pub delivered: NodePrefix,
    /// Whether pods have IPv4 addresses.
    pub has_ipv4: bool,
    /// MTU of the first bridge; none: there is no bridge.
    pub bridge_mtu: Option<u32>,
}

/// The agent and its data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentFacts {
    /// It answers, and is ready.
    Ready,
    /// It answers, and is not ready, with the reason.
    Waiting(String),
    /// A server that is no agent answers at its address.
    Other {
        /// The address.
        at: SocketAddr,
        /// The status with which it answers.
        status: u16,
    },
    /// None answers, but its data path serves.
    Gone,
    /// There is neither an agent nor a data path.
    Absent,
}

/// The agent's stream to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFacts {
    /// No agent answers, or it has no stream.
    None,
    /// It has TLS.
    Secured,
    /// It is plain text.
    Plain,
}

/// kube-proxy, and what it left.
#[derive(Clone, Debug, Default)]
pub struct KubeProxyFacts {
    /// Its processes.
    pub processes: Vec<u32>,
    /// Its rules.
    pub found: Found,
}

/// The folder of network configurations.
#[derive(Clone, Debug)]
pub struct ConflistFacts {
    /// The folder.
    pub folder: PathBuf,
    /// The names of the files that runtimes read, in their order, and whether each is of the plugin.
    pub files: Vec<(String, bool)>,
}
