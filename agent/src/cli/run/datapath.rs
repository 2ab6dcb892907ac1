//! The flags of `run` about the data path: where it is pinned and attached, its size, and what it forwards.

use std::path::PathBuf;

use clap::ValueEnum;
use dormouse_agent_datapath::{PacketFilter, XdpMode, packet_filter};
use dormouse_agent_pod::SYSCTLS_DEFAULT;

use super::wakes::WakeOptions;

/// The forwarder of packets between the cluster's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forwarding {
    /// The eBPF data path: uses the host's routes and neighbours, bypasses its netfilter hooks
    Direct,
    /// The host's network stack
    Kernel,
}

/// When packets are screened by the uplink's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Xdp {
    /// In native mode, where the driver keeps checksum and segmentation offload for the packets that pass
    Auto,
    /// In native mode, wherever the driver has it
    Native,
    /// Never: the classifier of the uplink drops the same packets, later
    Off,
}

impl From<Xdp> for XdpMode {
    fn from(flag: Xdp) -> Self {
        match flag {
            Xdp::Auto => Self::Auto,
            Xdp::Native => Self::Native,
            Xdp::Off => Self::Off,
        }
    }
}

/// The flags about the data path.
#[derive(Clone, Debug, clap::Args)]
pub struct DatapathOptions {
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
    /// Forwarder of packets between pods of --pod-range
    #[arg(
        long,
        env = "DORMOUSE_FORWARDING",
        value_enum,
        default_value = "direct"
    )]
    pub forwarding: Forwarding,
    /// Where packets from outside that can never be right, and those of denied sources, are dropped first: in the uplink's driver (XDP), or
    /// in its classifier. The agent's log says at the start which it is
    #[arg(long, env = "DORMOUSE_XDP", value_enum, default_value = "auto")]
    pub xdp: Xdp,
    /// Log the packets that have all of this, like `dst 2001:db8::1 and tcp port 80`: [src|dst] ADDRESS, [src|dst] net RANGE, [src|dst] port
    /// NUMBER, ip, ip6, tcp, udp, sctp, icmp, icmp6, proto NUMBER, as they arrive at the programs of the uplink and of pods; at most 100 lines
    /// a second, with target `packets`
    #[arg(
        long,
        env = "DORMOUSE_LOG_PACKETS",
        value_name = "FILTER",
        value_parser = packet_filter::parse
    )]
    pub log_packets: Option<PacketFilter>,
    /// File of denied sources outside: a prefix or an address per line, `#` begins a comment; it is watched
    #[arg(long, env = "DORMOUSE_DENY_FILE")]
    pub deny_file: Option<PathBuf>,
    /// The limit of wakes.
    #[command(flatten)]
    pub wakes: WakeOptions,
}
