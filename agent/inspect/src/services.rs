//! The service ports of a node as people see them.

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
pub use rows::{Wanted, rows};

/// One service port in one family, on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// The Service's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port's name; empty if it has none.
    pub port_name: String,
    /// The port's number.
    pub port: u16,
    /// Its protocol: `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The address inside the cluster.
    pub cluster_ip: IpAddr,
    /// External IPs, and addresses of load balancers.
    pub external: Vec<IpAddr>,
    /// The number at the nodes' addresses.
    pub node_port: Option<u16>,
    /// Where it answers on this node.
    pub vips: Vec<VipRow>,
    /// Which endpoints traffic may use.
    pub policy: Policies,
    /// How many backends there are.
    pub backends: Backends,
    /// What new connections get.
    pub answer: Answers,
    /// How long a client keeps its backend.
    pub affinity_seconds: Option<u32>,
    /// The backends; only where one Service was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub endpoints: Vec<Endpoint>,
    /// Its slots in the maps, where they could be read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub slots: Vec<u32>,
}

/// Where a service port answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VipRow {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// What it is: `clusterIP`, `external`, `loadBalancer`, `nodePort`.
    pub kind: String,
}

/// Which endpoints traffic may use: `Cluster` or `Local`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// From inside.
    pub internal: String,
    /// From outside; none where nothing comes from there.
    pub external: Option<String>,
}

/// How many backends there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backends {
    /// That this node may send to.
    pub all: usize,
    /// On this node.
    pub local: usize,
}

/// What new connections get: `serve`, `reject` or `drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// At the cluster IP.
    pub internal: String,
    /// At the other addresses, from outside.
    pub external: Option<String>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
    /// Traffic with policy Cluster may use it.
    pub for_cluster: bool,
    /// Traffic with policy Local may use it.
    pub for_local: bool,
}

impl ServiceRow {
    /// The Service, as `namespace/name`.
    pub fn service(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The Service and its port.
    pub fn title(&self) -> String {
        if self.port_name.is_empty() {
            format!("{}:{}", self.service(), self.port)
        } else {
            format!("{}:{}", self.service(), self.port_name)
        }
    }

    /// The answers in one word, if they agree.
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
