//! The service ports of a node as people see them, and the agent's read-only route that tells them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{
    Answer, Policy, ServiceKey, ServicePort, Services, Set, Source, Vip,
};
use serde::{Deserialize, Serialize};

use super::client::{self, encoded};
use super::output::{Column, Row, listed};
use super::{Exit, Trouble};
use crate::kube::SharedServices;

/// Where the agent tells its services.
pub const PATH: &str = "/services";

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

/// Which service ports are asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Of this namespace; none: of all.
    pub namespace: Option<String>,
    /// Of this name; none: all.
    pub name: Option<String>,
}

impl Wanted {
    /// As the query of an address.
    fn query(&self) -> String {
        let pair = |key: &str, value: &Option<String>| {
            let value = value.as_deref()?;
            Some(format!("{key}={}", encoded(value)))
        };
        let pairs = [pair("namespace", &self.namespace), pair("name", &self.name)];
        let pairs: Vec<String> = pairs.into_iter().flatten().collect();
        pairs.join("&")
    }

    fn fits(&self, port: &ServicePort) -> bool {
        let service = &port.id.service;
        let is = |wanted: &Option<String>, text: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == text)
        };
        is(&self.namespace, &service.namespace) && is(&self.name, &service.name)
    }
}

/// The rows of the service ports that are asked for, sorted by name, port and family.
pub fn rows(services: &Services, wanted: &Wanted) -> Vec<ServiceRow> {
    let mut ports: Vec<&Arc<ServicePort>> = match (&wanted.namespace, &wanted.name) {
        (Some(namespace), Some(name)) => {
            let key = ServiceKey::new(namespace, name);
            services.ports_of(&key).iter().collect()
        }
        _ => services.ports().filter(|port| wanted.fits(port)).collect(),
    };
    ports.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    let whole = wanted.name.is_some();
    ports
        .into_iter()
        .map(|port| row(services, port, whole))
        .collect()
}

fn row(services: &Services, port: &Arc<ServicePort>, whole: bool) -> ServiceRow {
    let addresses = &port.addresses;
    let external = addresses
        .external_ips
        .iter()
        .chain(&addresses.load_balancer_ips);
    let mut external: Vec<IpAddr> = external.copied().collect();
    external.dedup();
    let outside = port.is_external();
    ServiceRow {
        namespace: port.id.service.namespace.to_string(),
        name: port.id.service.name.to_string(),
        port_name: port.id.name.to_string(),
        port: port.number,
        protocol: port.id.protocol.to_string(),
        family: port.id.family.name().to_owned(),
        cluster_ip: addresses.cluster_ip,
        external,
        node_port: port.node_port,
        vips: vips(services, port),
        policy: Policies {
            internal: policy(port.internal),
            external: outside.then(|| policy(port.external)),
        },
        backends: Backends {
            all: port.backends.len(),
            local: port.backends.iter().filter(|backend| backend.local).count(),
        },
        answer: Answers {
            internal: answer(port.internal_answer()),
            external: outside.then(|| answer(port.external_answer(Source::Outside))),
        },
        affinity_seconds: port.affinity_s,
        endpoints: if whole { endpoints(port) } else { Vec::new() },
        slots: Vec::new(),
    }
}

/// The VIPs that lead to the service port, and to no other that has the same.
fn vips(services: &Services, port: &Arc<ServicePort>) -> Vec<VipRow> {
    let won = |vip: Vip| {
        let found = services.frontend(&vip)?;
        let kind = match found.kind {
            Kind::ClusterIp => "clusterIP",
            Kind::External => "external",
            Kind::LoadBalancer => "loadBalancer",
            Kind::NodePort => "nodePort",
        };
        (found.port.id == port.id).then(|| VipRow {
            address: vip.address,
            port: vip.port,
            kind: kind.to_owned(),
        })
    };
    let mut vips = services.vips_of(port);
    vips.sort_unstable();
    vips.dedup();
    vips.into_iter().filter_map(won).collect()
}

fn endpoints(port: &ServicePort) -> Vec<Endpoint> {
    let backends = port.backends.iter();
    let endpoint = |backend: dormouse_agent_services::Backend| Endpoint {
        address: backend.address,
        port: backend.port,
        local: backend.local,
        for_cluster: backend.for_cluster,
        for_local: backend.for_local,
    };
    backends.map(endpoint).collect()
}

fn policy(policy: Policy) -> String {
    match policy {
        Policy::Cluster => "Cluster",
        Policy::Local => "Local",
    }
    .to_owned()
}

fn answer(answer: Answer) -> String {
    match answer {
        Answer::Backends(Set::Cluster | Set::Local) => "serve",
        Answer::Reject => "reject",
        Answer::Drop => "drop",
    }
    .to_owned()
}

/// The route; without Services its list is empty.
pub fn route(services: Option<SharedServices>) -> Router {
    Router::new().route(PATH, get(tell)).with_state(services)
}

async fn tell(
    State(services): State<Option<SharedServices>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    Query(wanted): Query<Wanted>,
) -> Response {
    if !is_here(caller.ip()) {
        // Metrics name nobody; services do.
        return (StatusCode::FORBIDDEN, "only callers on this node are told").into_response();
    }
    let told = tokio::task::spawn_blocking(move || {
        // Who changes services waits for the rows, but not for their text.
        let rows = services.map(|services| rows(&services.lock(), &wanted));
        listed(&rows.unwrap_or_default())
    });
    match told.await {
        Ok(list) => Json(list).into_response(),
        Err(error) => {
            let kind = [(header::CONTENT_TYPE, "text/plain")];
            (StatusCode::INTERNAL_SERVER_ERROR, kind, error.to_string()).into_response()
        }
    }
}

/// Whether an address is this machine's own.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let own = |interface: nix::ifaddrs::InterfaceAddress| {
        let found = interface.address?;
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
    };
    address.is_loopback()
        || nix::ifaddrs::getifaddrs().is_ok_and(|mut all| all.any(|one| own(one) == Some(address)))
}

/// What the route answers.
#[derive(Deserialize)]
struct List {
    kind: String,
    items: Vec<ServiceRow>,
}

/// Asks the agent for service ports.
pub fn read(agent: SocketAddr, wanted: &Wanted) -> Result<Vec<ServiceRow>, Trouble> {
    let path = format!("{PATH}?{}", wanted.query());
    let list: List = client::read(agent, &path, "services")?;
    if list.kind != ServiceRow::KIND {
        let message = format!("the agent at {agent} answered with a {}", list.kind);
        let hint = "use the same version of command and agent";
        return Err(Trouble::new(Exit::Unreachable, message, hint));
    }
    Ok(list.items)
}
