//! Builds the rows from the Services of the agent; pure.

use std::net::IpAddr;
use std::sync::Arc;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::{
    Answer, Policy, ServiceKey, ServicePort, Services, Set, Source, Vip,
};
use serde::{Deserialize, Serialize};

use super::{Answers, Backends, Endpoint, Policies, ServiceRow, VipRow};
use crate::client::encoded;

/// The requested Services.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ServiceQuery {
    /// Namespace; none: all.
    pub namespace: Option<String>,
    /// Name; none: all.
    pub name: Option<String>,
}

impl ServiceQuery {
    /// The query string of the route.
    pub(super) fn query(&self) -> String {
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

/// The rows of the requested service ports, sorted by name, port and family.
pub fn rows(services: &Services, wanted: &ServiceQuery) -> Vec<ServiceRow> {
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

/// The service port's frontends, without those that another Service with the same address and port has won.
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
