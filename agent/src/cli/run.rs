//! The flags of `run`, by subject, and what they say about the node.

mod datapath;
mod node;
mod pods;
mod services;
mod source;
#[cfg(test)]
mod tests;
mod wakes;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use dormouse_agent_services::{Node, NodeAddresses, Prefix};
use dormouse_fleet::membership;

use super::{bpffs, check_name, install_cni};
use crate::metrics::Readers;
use crate::own_node::Place;
use crate::source::kubernetes::{Access, AccessError};

use datapath::DatapathOptions;
use node::NodeOptions;
use pods::PodOptions;
use services::ServiceOptions;
use source::SourceOptions;

pub use datapath::Forwarding;
pub(super) use node::network_profile;
pub use pods::RuntimeKind;

/// The flags of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The node.
    #[command(flatten)]
    pub node: NodeOptions,
    /// URL of control's fleet stream, like https://[2001:db8:d0::c]:7443 (http:// only on this host), by default that of the cluster that the node has joined; without both, entries have no lease and never expire
    #[arg(long, env = "DORMOUSE_CONTROL")]
    pub control: Option<String>,
    /// Line of `dormouse token create`, or a file with it: the node joins the cluster, and gets its certificate. It is not needed again while the
    /// certificate in the state folder is renewed; --control is then the cluster's
    #[arg(long, env = "DORMOUSE_JOIN", hide_env_values = true)]
    pub join: Option<String>,
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
    /// The data path.
    #[command(flatten)]
    pub datapath: DatapathOptions,
    /// The source of Services.
    #[command(flatten)]
    pub source: SourceOptions,
    /// Services.
    #[command(flatten)]
    pub services: ServiceOptions,
    /// Pods.
    #[command(flatten)]
    pub pods: PodOptions,
    /// Address and port of the metrics server, which has TLS once the node has joined. Other hosts and pods get its health only, without the
    /// certificate of an administrator or a role of the control plane
    #[arg(long, env = "DORMOUSE_METRICS", default_value = "[::]:10249")]
    pub metrics: SocketAddr,
    /// Range of sources that may read the metrics without a certificate, also as plain text, such as the pods of a Prometheus
    #[arg(long, env = "DORMOUSE_METRICS_FROM", value_delimiter = ',')]
    pub metrics_from: Vec<String>,
}

impl Run {
    /// Checks what clap cannot, before anything on the machine is changed.
    pub fn validate(&self) -> Result<()> {
        check_name(&self.node.node)?;
        let given = self.node.given()?;
        ensure!(
            !given.needs_node() || self.access()?.is_some(),
            "--prefix and --address are needed: without an API server (--api-server), no Node object has them"
        );
        self.services.ranges()?;
        self.datapath.wakes.limits()?;
        self.source.validate()?;
        self.access()?;
        self.conflist.validate()?;
        if let Some(url) = &self.control {
            dormouse_fleet::client::endpoint(url)?;
        }
        self.readers()?;
        self.pods.validate()
    }

    /// The sources of `--metrics-from`.
    pub(super) fn readers(&self) -> Result<Readers> {
        let given = self.metrics_from.iter().filter(|text| !text.is_empty());
        let parsed = given.map(|text| {
            Prefix::parse_or_single(text).with_context(|| {
                format!("--metrics-from {text}: write a range like 2001:db8:7::/64, or an address")
            })
        });
        parsed.collect()
    }

    /// The Kubernetes API servers and the credentials, if Services come from there.
    pub(crate) fn access(&self) -> Result<Option<Access>, AccessError> {
        self.source.access(&self.state_dir.join(membership::FOLDER))
    }

    /// The folder of the node's pins.
    pub(super) fn pins(&self) -> PathBuf {
        bpffs(self.datapath.bpffs.as_ref(), &self.node.node)
    }

    /// The node and its cluster as Services need them.
    pub(super) fn node_facts(&self, place: &Place) -> Result<Node> {
        let ranges = self.services.ranges()?;
        let v6 = place.address.map(Into::into);
        let v4 = place.address4.map(Into::into);
        Ok(Node {
            name: self.node.node.clone(),
            addresses: NodeAddresses {
                primary: v6.into_iter().chain(v4).collect(),
                local: Vec::new(),
            },
            pod_ranges: ranges.pods,
            service_ranges: ranges.services,
            node_port_addresses: ranges.node_ports,
            masquerade_all: self.services.masquerade_all,
        })
    }
}
