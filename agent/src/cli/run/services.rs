//! The flags of `run` about Services: the cluster's ranges, node ports, sources that are masqueraded or refused.

use std::net::SocketAddr;

use anyhow::Result;
use dormouse_agent_services::{NodePortAddresses, Prefix, Strictness};

/// The flags about Services.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceOptions {
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
}

/// The ranges of these flags.
pub(super) struct Ranges {
    pub(super) services: Vec<Prefix>,
    pub(super) pods: Vec<Prefix>,
    pub(super) node_ports: NodePortAddresses,
}

impl ServiceOptions {
    /// The ranges, checked.
    pub(super) fn ranges(&self) -> Result<Ranges> {
        let ranges = |flag: &str, texts: &[String]| {
            prefixes(texts).map_err(|text| {
                anyhow::anyhow!("{flag} {text}: write a range like fd00:20::/112 or 10.96.0.0/16")
            })
        };
        let node_ports = node_port_addresses(&self.node_port_addresses);
        Ok(Ranges {
            services: ranges("--service-range", &self.service_ranges)?,
            pods: ranges("--pod-range", &self.pod_ranges)?,
            node_ports: node_ports.map_err(|text| {
                anyhow::anyhow!("--node-port-addresses {text}: write `primary` or ranges")
            })?,
        })
    }

    /// Which sources are admitted whose Service lists no valid range.
    pub(crate) fn strictness(&self) -> Strictness {
        if self.strict_source_ranges {
            Strictness::SourceRanges
        } else {
            Strictness::KubeProxy
        }
    }
}

/// Parses `--node-port-addresses`: `primary` (Kubernetes' default), or ranges.
fn node_port_addresses(texts: &[String]) -> Result<NodePortAddresses, String> {
    if texts.is_empty() || texts == ["primary"] {
        return Ok(NodePortAddresses::Primary);
    }
    prefixes(texts).map(NodePortAddresses::Within)
}

/// Parses address ranges; the error is the text that is not a range.
fn prefixes(texts: &[String]) -> Result<Vec<Prefix>, String> {
    texts
        .iter()
        .map(|text| Prefix::parse(text).ok_or_else(|| text.clone()))
        .collect()
}
