//! The fields of a Service that its manifest does not set: what it had before, what no longer belongs to its type, and
//! Kubernetes' defaults. Pure.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{
    ClientIPConfig, Service, ServicePort, ServiceSpec, SessionAffinityConfig,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::range::{IpFamily, ServiceRanges};
use super::{Type, has_health_port, has_selector, is_external, is_headless};

/// How long a client's connections go to one endpoint, in seconds; Kubernetes' default.
const AFFINITY_S: i32 = 10_800;

/// Sets what is not set, of a Service in place of `old`.
pub fn set_defaults(service: &mut Service, old: Option<&Service>, ranges: &ServiceRanges) {
    service.status.get_or_insert_default();
    let status = service.status.get_or_insert_default();
    status.load_balancer.get_or_insert_default();
    let spec = service.spec.get_or_insert_default();
    let old = old.and_then(|old| old.spec.as_ref());
    if let Some(old) = old {
        drop_of_other_type(spec, old);
    }
    set_values(spec);
    same_addresses(spec, old);
    if let Some(old) = old {
        keep(spec, old);
    }
    set_families(spec, old, ranges);
}

fn set_values(spec: &mut ServiceSpec) {
    let text = |field: &mut Option<String>, value: &str| {
        if field.as_ref().is_none_or(String::is_empty) {
            *field = Some(value.to_owned());
        }
    };
    text(&mut spec.type_, "ClusterIP");
    text(&mut spec.session_affinity, "None");
    if Type::of(spec) != Type::ExternalName {
        text(&mut spec.internal_traffic_policy, "Cluster");
    }
    if is_external(spec) {
        text(&mut spec.external_traffic_policy, "Cluster");
    }
    if Type::of(spec) == Type::LoadBalancer {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
    match spec.session_affinity.as_deref() {
        Some("ClientIP") => {
            let config = spec.session_affinity_config.get_or_insert_default();
            let client = config.client_ip.get_or_insert_default();
            client.timeout_seconds.get_or_insert(AFFINITY_S);
        }
        _ if spec.session_affinity_config == Some(default_affinity()) => {
            spec.session_affinity_config = None;
        }
        _ => {}
    }
    for port in spec.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        let is_set = match &port.target_port {
            None | Some(IntOrString::Int(0)) => false,
            Some(IntOrString::String(name)) => !name.is_empty(),
            Some(IntOrString::Int(_)) => true,
        };
        if !is_set {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
}

/// What [`set_values`] writes: a manifest that turns affinity off does not know of it.
fn default_affinity() -> SessionAffinityConfig {
    SessionAffinityConfig {
        client_ip: Some(ClientIPConfig {
            timeout_seconds: Some(AFFINITY_S),
        }),
    }
}

/// Removes what the Service has of its earlier type only: addresses, node ports and policies that are still as they were.
fn drop_of_other_type(spec: &mut ServiceSpec, old: &ServiceSpec) {
    let (before, now) = (Type::of(old), Type::of(spec));
    let same_ips = spec.cluster_ip == old.cluster_ip && spec.cluster_ips == old.cluster_ips;
    if before != Type::ExternalName && now == Type::ExternalName && same_ips {
        (spec.cluster_ip, spec.cluster_ips) = (None, None);
        (spec.ip_families, spec.ip_family_policy) = (None, None);
        spec.internal_traffic_policy = None;
    }
    if before.has_node_ports() && !now.has_node_ports() {
        let known = names_of_node_ports(old);
        for port in spec.ports.iter_mut().flatten() {
            if known.get(&port.name) == Some(&port.node_port) {
                port.node_port = None;
            }
        }
    }
    let same_health = spec.health_check_node_port == old.health_check_node_port;
    if has_health_port(old) && !has_health_port(spec) && same_health {
        spec.health_check_node_port = None;
    }
    let is_left = before == Type::LoadBalancer && now != Type::LoadBalancer;
    if is_left && spec.allocate_load_balancer_node_ports == old.allocate_load_balancer_node_ports {
        spec.allocate_load_balancer_node_ports = None;
    }
    if is_left && spec.load_balancer_class == old.load_balancer_class {
        spec.load_balancer_class = None;
    }
    let same_policy = spec.external_traffic_policy == old.external_traffic_policy;
    if is_external(old) && !is_external(spec) && same_policy {
        spec.external_traffic_policy = None;
    }
}

/// Makes the one and the several cluster IPs agree, by the one of them that the manifest changed.
fn same_addresses(spec: &mut ServiceSpec, old: Option<&ServiceSpec>) {
    let first = spec.cluster_ip.clone().filter(|ip| !ip.is_empty());
    let several = spec.cluster_ips.clone().unwrap_or_default();
    let old_first = old.and_then(|old| old.cluster_ip.clone());
    let is_unchanged = old.is_some_and(|old| old.cluster_ips == spec.cluster_ips);
    match first {
        Some(first) if several.is_empty() => spec.cluster_ips = Some(vec![first]),
        Some(first) if is_unchanged && Some(&first) != old_first.as_ref() => {
            spec.cluster_ips = Some(
                [first]
                    .into_iter()
                    .chain(several.into_iter().skip(1))
                    .collect(),
            );
        }
        None if old.is_none() || !is_unchanged => spec.cluster_ip = several.first().cloned(),
        None => spec.cluster_ips = None,
        Some(_) => {}
    }
}

/// Keeps the addresses and node ports that the manifest leaves out.
fn keep(spec: &mut ServiceSpec, old: &ServiceSpec) {
    let have_ips = [&*spec, old]
        .iter()
        .all(|one| Type::of(one) != Type::ExternalName);
    if have_ips {
        if spec.cluster_ip.is_none() {
            spec.cluster_ip.clone_from(&old.cluster_ip);
        }
        let named = spec.cluster_ips.as_ref().map_or(0, Vec::len);
        if named <= 1 && spec.cluster_ip == old.cluster_ip {
            spec.cluster_ips.clone_from(&old.cluster_ips);
        }
    }
    if Type::of(old).has_node_ports() && Type::of(spec).has_node_ports() {
        keep_node_ports(spec, old);
    }
    if has_health_port(old)
        && has_health_port(spec)
        && spec.health_check_node_port.unwrap_or(0) == 0
    {
        spec.health_check_node_port = old.health_check_node_port;
    }
}

/// Gives ports without a node port the one that a port of this name had, unless the manifest gives it to another.
fn keep_node_ports(spec: &mut ServiceSpec, old: &ServiceSpec) {
    let known = names_of_node_ports(old);
    let ports = spec.ports.iter_mut().flatten();
    let (mut without, with): (Vec<&mut ServicePort>, Vec<&mut ServicePort>) =
        ports.partition(|port| port.node_port.unwrap_or(0) == 0);
    let mut used: HashSet<Option<i32>> = with.iter().map(|port| port.node_port).collect();
    for port in &mut without {
        let before = known.get(&port.name).copied().flatten();
        if before.is_some() && used.insert(before) {
            port.node_port = before;
        }
    }
}

fn names_of_node_ports(spec: &ServiceSpec) -> BTreeMap<Option<String>, Option<i32>> {
    let ports = spec.ports.iter().flatten();
    ports
        .map(|port| (port.name.clone(), port.node_port))
        .collect()
}

/// Sets the families and their policy: as the Service had them, as its addresses are, or the cluster's preferred one.
fn set_families(spec: &mut ServiceSpec, old: Option<&ServiceSpec>, ranges: &ServiceRanges) {
    if Type::of(spec) == Type::ExternalName {
        return;
    }
    let mut families = spec.ip_families.take().unwrap_or_default();
    if let Some(old) = old.filter(|old| Type::of(old) != Type::ExternalName) {
        if spec.ip_family_policy.is_none() {
            spec.ip_family_policy.clone_from(&old.ip_family_policy);
        }
        if families.is_empty() {
            families = old.ip_families.clone().unwrap_or_default();
        }
    }
    for address in spec.cluster_ips.iter().flatten().skip(families.len()) {
        families.extend(
            address
                .parse()
                .map(|address| IpFamily::of(address).as_str().to_owned()),
        );
    }
    if families.is_empty() {
        families.push(ranges.preferred().as_str().to_owned());
    }
    let of_any = is_headless(spec) && !has_selector(spec);
    let policy = spec.ip_family_policy.get_or_insert_with(|| {
        if of_any {
            "RequireDualStack"
        } else {
            "SingleStack"
        }
        .to_owned()
    });
    if policy == "SingleStack" {
        shorten(spec, &mut families, old);
    } else if families.len() == 1 && (ranges.is_dual() || of_any) {
        let other = IpFamily::parse(&families[0]).map(IpFamily::other);
        families.extend(other.map(|other| other.as_str().to_owned()));
    }
    spec.ip_families = Some(families);
}

/// Releases the second family of a Service that becomes one of a single family.
fn shorten(spec: &mut ServiceSpec, families: &mut Vec<String>, old: Option<&ServiceSpec>) {
    let Some(old) = old else { return };
    if old.ip_families.as_ref() == Some(&*families) {
        families.truncate(1);
    }
    if let Some(addresses) = &mut spec.cluster_ips
        && old.cluster_ips.as_ref() == Some(&*addresses)
    {
        addresses.truncate(1);
    }
}

#[cfg(test)]
mod tests;
