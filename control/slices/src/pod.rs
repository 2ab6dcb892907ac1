//! What counts of a pod for the Services that select it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dormouse_cluster::pod::has_ended;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

/// A pod that Services may select. Two that are equal make the same endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The pod's uid.
    pub uid: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses, at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// Its node.
    pub node: Option<String>,
    /// It accepts requests, also while it ends.
    pub serving: bool,
    /// It ends.
    pub terminating: bool,
    /// Its own name in the domain of its headless Service, and that Service.
    pub hostname: Option<(String, String)>,
    /// The named ports of its containers: name, protocol and number.
    pub ports: Vec<(String, String, i32)>,
}

impl Member {
    /// The member of a pod; none while it has no address, and after it has ended.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
        if has_ended(status) {
            return None;
        }
        let addresses = addresses(status);
        if addresses.is_empty() {
            return None;
        }
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        let named = ports.filter_map(|port| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((port.name.clone()?, protocol, port.container_port))
        });
        Some(Self {
            uid: pod.metadata.uid.clone(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses,
            node: spec.node_name.clone(),
            serving: is_ready(status),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            hostname: spec.hostname.clone().zip(spec.subdomain.clone()),
            ports: named.collect(),
        })
    }

    /// The number of the port with this name and protocol.
    pub fn port(&self, name: &str, protocol: &str) -> Option<i32> {
        let mut ports = self.ports.iter();
        let found = ports.find(|(own, of, _)| own == name && of == protocol);
        found.map(|(_, _, number)| *number)
    }
}

fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let several = status.pod_ips.iter().flatten().map(|one| one.ip.as_str());
    let all = several.chain(status.pod_ip.as_deref());
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|text| text.parse::<IpAddr>().ok()) {
        // Whoever wrote it into the store, clients of the Service would connect to their own host.
        if dormouse_nodes::unusable(address).is_some() {
            continue;
        }
        if addresses
            .iter()
            .all(|one| one.is_ipv4() != address.is_ipv4())
        {
            addresses.push(address);
        }
    }
    addresses
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
