//! Host ports: addresses, protocols and port numbers of a node that pods use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The address that stands for all; `::` is an address like any other.
const ANY: &str = "0.0.0.0";

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostPort {
    protocol: String,
    port: i32,
    address: String,
}

/// The host ports in use on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UsedPorts {
    /// Addresses by protocol and port.
    used: BTreeMap<(String, i32), Vec<String>>,
}

impl HostPort {
    /// The host ports of the containers and sidecars of a pod.
    pub(crate) fn all(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|one| one.restart_policy.as_deref() == Some("Always"));
        sidecars
            .chain(&spec.containers)
            .flat_map(Self::of)
            .collect()
    }

    fn of(container: &Container) -> impl Iterator<Item = Self> {
        let ports = container.ports.iter().flatten();
        ports.filter_map(|port| {
            let text = |field: &Option<String>, default: &str| {
                let given = field.as_deref().filter(|text| !text.is_empty());
                given.unwrap_or(default).to_owned()
            };
            Some(Self {
                protocol: text(&port.protocol, "TCP"),
                port: port.host_port.filter(|port| *port > 0)?,
                address: text(&port.host_ip, ANY),
            })
        })
    }
}

impl UsedPorts {
    /// Each address is in use once, however many pods claim it.
    pub(crate) fn add(&mut self, ports: &[HostPort]) {
        for one in ports {
            let key = (one.protocol.clone(), one.port);
            let addresses = self.used.entry(key).or_default();
            if !addresses.contains(&one.address) {
                addresses.push(one.address.clone());
            }
        }
    }

    pub(crate) fn remove(&mut self, ports: &[HostPort]) {
        for one in ports {
            let key = (one.protocol.clone(), one.port);
            if let Some(addresses) = self.used.get_mut(&key) {
                addresses.retain(|address| *address != one.address);
            }
        }
    }

    /// Whether one of `ports` is in use.
    pub(crate) fn conflict(&self, ports: &[HostPort]) -> bool {
        ports.iter().any(|one| {
            let addresses = self.used.get(&(one.protocol.clone(), one.port));
            let mut addresses = addresses.into_iter().flatten();
            addresses.any(|used| one.address == ANY || used == ANY || *used == one.address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(address: &str) -> Vec<HostPort> {
        vec![HostPort {
            protocol: "TCP".to_owned(),
            port: 80,
            address: address.to_owned(),
        }]
    }

    #[test]
    fn only_the_ipv4_wildcard_stands_for_all_addresses() {
        let mut used = UsedPorts::default();
        used.add(&port("10.0.0.1"));
        assert!(used.conflict(&port(ANY)));
        assert!(used.conflict(&port("10.0.0.1")));
        assert!(!used.conflict(&port("10.0.0.2")));
        assert!(!used.conflict(&port("::")));
        used.add(&port(ANY));
        assert!(used.conflict(&port("::")));
        used.remove(&port(ANY));
        assert!(!used.conflict(&port("::")));
    }
}
