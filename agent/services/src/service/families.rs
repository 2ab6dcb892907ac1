//! The addresses of a Service in one family.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceSpec as Spec};

use crate::address::{Family, Prefix, parse_address};
use crate::problem::Faults;

use super::{Addresses, Strictness};

/// The addresses of the family; without a cluster IP of the family, none of the others is served.
pub(super) fn addresses(
    service: &Service,
    family: Family,
    strictness: Strictness,
    faults: &mut Faults<'_>,
) -> Option<Addresses> {
    let spec = service.spec.as_ref()?;
    let text = cluster_ip(spec, family).filter(|text| !matches!(*text, "" | "None"))?;
    let cluster_ip = parse_address(text).filter(|address| Family::of(*address) == family);
    Some(Addresses {
        cluster_ip: faults.read("spec.clusterIPs", text, cluster_ip)?,
        external_ips: external_ips(spec, family, faults),
        load_balancer_ips: load_balancer_ips(service, family, faults),
        source_ranges: source_ranges(spec, family, strictness, faults),
    })
}

/// The cluster IP of the family, as text.
fn cluster_ip(spec: &Spec, family: Family) -> Option<&str> {
    let families = spec.ip_families.as_deref().unwrap_or_default();
    if families.is_empty() {
        let only = spec.cluster_ip.as_deref()?;
        return parse_address(only)
            .is_none_or(|address| Family::of(address) == family)
            .then_some(only);
    }
    let index = families.iter().position(|name| name == family.name())?;
    let addresses = spec.cluster_ips.as_deref().unwrap_or_default();
    addresses.get(index).map(String::as_str)
}

fn external_ips(spec: &Spec, family: Family, faults: &mut Faults<'_>) -> Box<[IpAddr]> {
    let texts = spec.external_ips.iter().flatten();
    of_family("spec.externalIPs[]", texts, family, faults)
}

/// The load balancer addresses that packets to the node still have as destination: not those of mode `Proxy`.
fn load_balancer_ips(service: &Service, family: Family, faults: &mut Faults<'_>) -> Box<[IpAddr]> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let vips = ingress.unwrap_or_default().iter().filter(|ingress| {
        let mode = ingress.ip_mode.as_deref();
        mode.is_none_or(|mode| mode == "VIP")
    });
    let texts = vips.filter_map(|ingress| ingress.ip.as_ref());
    let texts = texts.filter(|text| !text.is_empty());
    of_family("status.loadBalancer.ingress[].ip", texts, family, faults)
}

/// The valid addresses of the family, sorted, without duplicates.
fn of_family<'a>(
    field: &'static str,
    texts: impl Iterator<Item = &'a String>,
    family: Family,
    faults: &mut Faults<'_>,
) -> Box<[IpAddr]> {
    let read = texts.filter_map(|text| faults.read(field, text, parse_address(text)));
    let mut addresses: Vec<_> = read
        .filter(|address| Family::of(*address) == family)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

/// The sources that may use the load balancer's addresses, as often as the Service lists them; none: all sources may.
///
/// If no range of this family is valid, all sources are admitted, as with kube-proxy, or none with `--strict-source-ranges`.
fn source_ranges(
    spec: &Spec,
    family: Family,
    strictness: Strictness,
    faults: &mut Faults<'_>,
) -> Option<Box<[Prefix]>> {
    let texts = spec
        .load_balancer_source_ranges
        .as_deref()
        .unwrap_or_default();
    let read = texts.iter().filter_map(|text| {
        let field = "spec.loadBalancerSourceRanges[]";
        faults.read(field, text, Prefix::parse(text.trim()))
    });
    let mut ranges: Vec<_> = read.filter(|range| range.family() == family).collect();
    if texts.is_empty() || ranges.iter().any(|range| range.length() == 0) {
        return None;
    }
    if ranges.is_empty() {
        let refused = strictness == Strictness::SourceRanges;
        faults.no_source_range(family.name(), refused);
        return refused.then(Box::default);
    }
    ranges.sort_unstable();
    Some(ranges.into())
}
