//! `get services`: the service ports of a node.

use std::net::IpAddr;
use std::sync::Arc;

use dormouse_agent_services::Services;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::output::{Column, Row};

/// Services as their users share them: the loop that syncs them, and the route that lists them.
pub type SharedServices = Arc<Mutex<Services>>;

mod route;
mod rows;

pub use route::{PATH, read, route};
pub use rows::{ServiceQuery, rows};

/// One service port of one family, on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the port; empty if it has none.
    pub port_name: String,
    /// Number of the port at the cluster IP.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The cluster IP of this family.
    pub cluster_ip: IpAddr,
    /// External IPs and load balancer IPs.
    pub external: Vec<IpAddr>,
    /// The node port.
    pub node_port: Option<u16>,
    /// The frontends on this node.
    pub vips: Vec<VipRow>,
    /// The traffic policies.
    pub policy: Policies,
    /// The number of backends.
    pub backends: Backends,
    /// The answer to new connections.
    pub answer: Answers,
    /// Timeout of ClientIP session affinity; none without affinity.
    pub affinity_seconds: Option<u32>,
    /// The backends; only filled when a single Service is requested.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub endpoints: Vec<Endpoint>,
    /// The slots in the maps, if they could be read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub slots: Vec<u32>,
}

/// A frontend: address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VipRow {
    /// Frontend address.
    pub address: IpAddr,
    /// Frontend port.
    pub port: u16,
    /// `clusterIP`, `external`, `loadBalancer` or `nodePort`.
    pub kind: String,
}

/// Traffic policies: `Cluster` or `Local`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// internalTrafficPolicy.
    pub internal: String,
    /// externalTrafficPolicy; none if the Service has no external frontend.
    pub external: Option<String>,
}

/// Numbers of backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backends {
    /// All that this node may choose.
    pub all: usize,
    /// Those on this node.
    pub local: usize,
}

/// Answers to new connections: `serve`, `reject` or `drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// At the cluster IP, and to sources inside the cluster.
    pub internal: String,
    /// At external frontends, to sources outside of the cluster.
    pub external: Option<String>,
}

/// A backend of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Backend address, after DNAT.
    pub address: IpAddr,
    /// Backend port, after DNAT.
    pub port: u16,
    /// The backend is a pod of this node.
    pub local: bool,
    /// Used with traffic policy Cluster.
    pub for_cluster: bool,
    /// Used with traffic policy Local.
    pub for_local: bool,
}

impl ServiceRow {
    /// `namespace/name`.
    pub fn service(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// `namespace/name:port`.
    pub fn title(&self) -> String {
        if self.port_name.is_empty() {
            format!("{}:{}", self.service(), self.port)
        } else {
            format!("{}:{}", self.service(), self.port_name)
        }
    }

    /// The internal answer, and the external one if it differs.
    fn answers(&self) -> String {
        match &self.answer.external {
            Some(external) if *external != self.answer.internal => {
                format!("{}, outside {external}", self.answer.internal)
            }
            _ => self.answer.internal.clone(),
        }
    }

    fn policies(&self) -> String {
        match &self.policy.external {
            Some(external) if *external != self.policy.internal => {
                format!("{}, outside {external}", self.policy.internal)
            }
            _ => self.policy.internal.clone(),
        }
    }
}

impl Row for ServiceRow {
    const KIND: &'static str = "NodeServiceList";
    const COLUMNS: &'static [Column] = &[
        ("NAMESPACE", false),
        ("NAME", false),
        ("PORT", false),
        ("PROTO", false),
        ("VIP", false),
        ("EXTERNAL", false),
        ("NODEPORT", false),
        ("POLICY", false),
        ("BACKENDS", false),
        ("ANSWER", false),
        ("AFFINITY", false),
        ("SLOTS", true),
    ];

    fn cells(&self) -> Vec<String> {
        let texts = |list: &[IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let slots: Vec<String> = self.slots.iter().map(ToString::to_string).collect();
        let port = if self.port_name.is_empty() {
            self.port.to_string()
        } else {
            format!("{}:{}", self.port_name, self.port)
        };
        vec![
            self.namespace.clone(),
            self.name.clone(),
            port,
            self.protocol.clone(),
            self.cluster_ip.to_string(),
            texts(&self.external).join(","),
            self.node_port
                .map(|port| port.to_string())
                .unwrap_or_default(),
            self.policies(),
            format!("{}/{}", self.backends.all, self.backends.local),
            self.answers(),
            self.affinity_seconds
                .map(|s| format!("{s}s"))
                .unwrap_or_default(),
            slots.join(","),
        ]
    }

    fn name(&self) -> String {
        format!("service/{}", self.name)
    }
}
