//! Parsing of a Service: addresses by family, ports, policies.

mod families;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec as Spec};

use crate::address::{Family, Prefix};
use crate::few::Few;
use crate::key::Protocol;
use crate::problem::{Faults, Problem};

/// A Service with this label belongs to another proxy.
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// The API server's default of the affinity timeout, in seconds: three hours.
const AFFINITY_DEFAULT_S: u32 = 10_800;

/// A traffic policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Endpoints of the whole cluster.
    Cluster,
    /// Endpoints of this node only.
    Local,
}

/// Which sources may use a load balancer's addresses whose source ranges include no valid range of the family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// All sources, as with kube-proxy.
    #[default]
    KubeProxy,
    /// No source.
    SourceRanges,
}

/// The addresses of a Service in one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The cluster IP.
    pub cluster_ip: IpAddr,
    /// `spec.externalIPs`, sorted.
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of the load balancer in mode VIP, sorted.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// `spec.loadBalancerSourceRanges`; absent: all sources are admitted; empty: none is.
    pub source_ranges: Option<Box<[Prefix]>>,
}

impl Addresses {
    /// The external IPs and the load balancer's addresses; one may be both.
    pub fn external(&self) -> impl Iterator<Item = IpAddr> {
        let all = self.external_ips.iter().chain(&self.load_balancer_ips);
        all.copied()
    }

    /// Whether there is an address for external traffic.
    pub(crate) fn is_external(&self) -> bool {
        !self.external_ips.is_empty() || !self.load_balancer_ips.is_empty()
    }
}

/// A port of the Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Name; empty if it has none.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// `port`: at cluster IP, external IPs and load balancer IPs.
    pub number: u16,
    /// `nodePort`.
    pub node_port: Option<u16>,
}

/// The part of a Service that a node needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceSpec {
    /// Creation time in seconds of Unix time: the oldest wins a conflict.
    pub created_s: i64,
    /// Addresses by family; none: not served in that family.
    pub addresses: [Option<Arc<Addresses>>; 2],
    /// Ports, in the Service's order.
    pub ports: Few<PortSpec>,
    /// Timeout of session affinity in seconds; none without affinity.
    pub affinity_s: Option<u32>,
    /// internalTrafficPolicy.
    pub internal: Policy,
    /// externalTrafficPolicy, Cluster if it does not apply.
    pub external: Policy,
    /// healthCheckNodePort.
    pub health_port: Option<u16>,
}

/// Namespace and name of a Service, if it has both.
pub(crate) fn names(service: &Service) -> Option<(&str, &str)> {
    let meta = &service.metadata;
    meta.namespace.as_deref().zip(meta.name.as_deref())
}

/// Parses a Service; none if this proxy does not serve it.
pub fn read(service: &Service, strictness: Strictness) -> (Option<ServiceSpec>, Vec<Problem>) {
    let (namespace, name) = names(service).unwrap_or_default();
    let mut faults = Faults::of("Service", namespace, name);
    let labels = service.metadata.labels.as_ref();
    let foreign = labels.is_some_and(|labels| labels.contains_key(PROXY_NAME_LABEL));
    let spec = service
        .spec
        .as_ref()
        .filter(|spec| !foreign && has_cluster_ip(spec));
    let read = spec.map(|spec| ServiceSpec {
        created_s: created_s(service),
        addresses: Family::ALL.map(|family| {
            families::addresses(service, family, strictness, &mut faults).map(Arc::new)
        }),
        ports: ports(spec, &mut faults),
        affinity_s: affinity_s(spec, &mut faults),
        internal: policy(spec.internal_traffic_policy.as_deref()),
        external: external_policy(spec),
        health_port: health_port(spec, &mut faults),
    });
    (read, faults.found())
}

/// Whether the Service has a cluster IP; without one (headless, not assigned yet, ExternalName) it is not served.
fn has_cluster_ip(spec: &Spec) -> bool {
    let cluster_ip = spec.cluster_ip.as_deref().unwrap_or_default();
    !matches!(cluster_ip, "" | "None") && spec.type_.as_deref() != Some("ExternalName")
}

fn created_s(service: &Service) -> i64 {
    let created = service.metadata.creation_timestamp.as_ref();
    created.map_or(i64::MAX, |time| time.0.as_second())
}

fn policy(text: Option<&str>) -> Policy {
    match text {
        Some("Local") => Policy::Local,
        _ => Policy::Cluster,
    }
}

fn is_local_outside(spec: &Spec) -> bool {
    policy(spec.external_traffic_policy.as_deref()) == Policy::Local
}

/// The policy applies to types with external frontends, and to others if they have external IPs.
fn external_policy(spec: &Spec) -> Policy {
    let listed = spec
        .external_ips
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    let counts = match spec.type_.as_deref() {
        Some("LoadBalancer" | "NodePort") => true,
        _ => listed,
    };
    if counts && is_local_outside(spec) {
        Policy::Local
    } else {
        Policy::Cluster
    }
}

fn health_port(spec: &Spec, faults: &mut Faults<'_>) -> Option<u16> {
    let balanced = spec.type_.as_deref() == Some("LoadBalancer") && is_local_outside(spec);
    let number = spec.health_check_node_port.filter(|_| balanced)?;
    optional_number("spec.healthCheckNodePort", number, faults)
}

fn affinity_s(spec: &Spec, faults: &mut Faults<'_>) -> Option<u32> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = spec.session_affinity_config.as_ref();
    let client = config.and_then(|config| config.client_ip.as_ref());
    let Some(seconds) = client.and_then(|client| client.timeout_seconds) else {
        return Some(AFFINITY_DEFAULT_S);
    };
    let valid = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    if valid.is_none() {
        faults.field(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            seconds.to_string(),
        );
    }
    Some(valid.unwrap_or(AFFINITY_DEFAULT_S))
}

fn ports(spec: &Spec, faults: &mut Faults<'_>) -> Few<PortSpec> {
    let listed = spec.ports.as_deref().unwrap_or_default();
    let mut read = Vec::with_capacity(listed.len());
    let mut seen = BTreeSet::new();
    for port in listed {
        let Some(port) = port_spec(port, faults) else {
            continue;
        };
        if seen.insert((Arc::clone(&port.name), port.protocol)) {
            read.push(port);
        } else {
            faults.field("spec.ports[].name", &*port.name);
        }
    }
    read.into()
}

fn port_spec(port: &ServicePort, faults: &mut Faults<'_>) -> Option<PortSpec> {
    let protocol = Protocol::named(port.protocol.as_deref());
    let protocol_name = port.protocol.as_deref().unwrap_or_default();
    let protocol = faults.read("spec.ports[].protocol", protocol_name, protocol)?;
    let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
    let number = faults.read("spec.ports[].port", &port.port.to_string(), number)?;
    let node_port = port.node_port;
    Some(PortSpec {
        name: port.name.as_deref().map_or_else(Arc::default, Arc::from),
        protocol,
        number,
        node_port: node_port
            .and_then(|number| optional_number("spec.ports[].nodePort", number, faults)),
    })
}

/// A port number, of which 0 means none.
fn optional_number(field: &'static str, number: i32, faults: &mut Faults<'_>) -> Option<u16> {
    if number == 0 {
        return None;
    }
    faults.read(field, &number.to_string(), u16::try_from(number).ok())
}
