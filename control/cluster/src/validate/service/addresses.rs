//! The addresses of a Service, and their families.

use std::collections::HashSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ServiceSpec;

use super::text;
use crate::FieldError;
use crate::service::{HEADLESS, IpFamily, ServiceRanges, Type, has_selector, is_headless};
use crate::validate::words;

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Checks the cluster IPs, their families, and the external addresses.
pub(super) fn check(spec: &ServiceSpec, ranges: &ServiceRanges, errors: &mut Vec<FieldError>) {
    for (index, address) in spec.external_ips.iter().flatten().enumerate() {
        errors.extend(external(format!("spec.externalIPs[{index}]"), address));
    }
    if Type::of(spec) == Type::ExternalName {
        return;
    }
    let before = errors.len();
    families(spec, ranges, errors);
    if errors.len() == before {
        cluster_ips(spec, errors);
    }
}

/// The error of an address at which the data path is to answer: it must be one of a machine's.
fn external(field: String, text: &str) -> Option<FieldError> {
    let Ok(address) = text.parse::<IpAddr>() else {
        return Some(words::invalid(field, text, NO_ADDRESS));
    };
    special(address).map(|kind| words::invalid(field, text, format!("may not be {kind}")))
}

/// The range of addresses without a machine of its own in which this address is.
pub(in crate::validate) fn special(address: IpAddr) -> Option<&'static str> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let kinds = [
        (address.is_unspecified(), "unspecified (0.0.0.0 or ::)"),
        (
            address.is_loopback(),
            "in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            is_link_local,
            "in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            address.is_multicast(),
            "in the multicast range (224.0.0.0/4, ff00::/8)",
        ),
    ];
    kinds.into_iter().find_map(|(is, kind)| is.then_some(kind))
}

fn families(spec: &ServiceSpec, ranges: &ServiceRanges, errors: &mut Vec<FieldError>) {
    let names = spec.ip_families.as_deref().unwrap_or_default();
    let any = is_headless(spec) && !has_selector(spec);
    if names.len() > 2 {
        errors.push(words::invalid(
            "spec.ipFamilies",
            names.to_vec(),
            "may only hold up to 2 values",
        ));
    }
    let mut known = HashSet::new();
    for (index, name) in names.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        match IpFamily::parse(name) {
            None => errors.push(words::unsupported(field, name, &["IPv4", "IPv6"])),
            Some(_) if !known.insert(name) => {
                errors.push(words::duplicate(field, name.as_str()));
            }
            Some(family) if !ranges.has(family) && !any => {
                errors.push(words::invalid(
                    field,
                    name.as_str(),
                    "not configured on this cluster",
                ));
            }
            Some(_) => {}
        }
    }
    let field = "spec.ipFamilyPolicy";
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    match text(spec.ip_family_policy.as_ref()) {
        "RequireDualStack" if !ranges.is_dual() && !any => errors.push(words::invalid(
            field,
            "RequireDualStack",
            "this cluster is not configured for dual-stack services",
        )),
        "SingleStack" if names.len() > 1 => errors.push(words::invalid(
            field,
            "SingleStack",
            "may be 'PreferDualStack' or 'RequireDualStack' when multiple 'ipFamilies' are specified",
        )),
        policy if !policies.contains(&policy) => {
            errors.push(words::unsupported(field, policy, &policies));
        }
        _ => {}
    }
}

fn cluster_ips(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let all = spec.cluster_ips.as_deref().unwrap_or_default();
    let families = spec.ip_families.as_deref().unwrap_or_default();
    if spec.cluster_ip.as_ref() != all.first() {
        let first = all.first().map_or("", String::as_str);
        errors.push(words::invalid(
            "spec.clusterIPs[0]",
            first,
            "must match `clusterIP`",
        ));
    }
    if all.len() > 2 {
        errors.push(words::invalid(
            "spec.clusterIPs",
            all.to_vec(),
            "may only hold up to 2 values",
        ));
    }
    if all.len() > 1 && all.iter().any(|one| one == HEADLESS) {
        let detail = "'None' must be the first and only value";
        errors.push(words::invalid("spec.clusterIPs", all.to_vec(), detail));
        return;
    }
    for (index, address) in all.iter().enumerate().filter(|(_, one)| *one != HEADLESS) {
        let field = format!("spec.clusterIPs[{index}]");
        match (address.parse().map(IpFamily::of), families.get(index)) {
            (Err(_), _) => errors.push(words::invalid(field, address.as_str(), NO_ADDRESS)),
            (Ok(family), Some(name)) if family.as_str() != name => {
                let detail =
                    format!("expected an {name} value as indicated by `ipFamilies[{index}]`");
                errors.push(words::invalid(field, address.as_str(), detail));
            }
            (Ok(_), None) => {
                let detail = "`ipFamilyPolicy` allows one address only";
                errors.push(words::invalid(field, address.as_str(), detail));
            }
            (Ok(_), Some(_)) => {}
        }
    }
}

/// Checks the ranges of clients' addresses.
pub(super) fn source_ranges(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    for (index, range) in spec
        .load_balancer_source_ranges
        .iter()
        .flatten()
        .enumerate()
    {
        let parts = range.trim().split_once('/');
        let parsed = parts.and_then(|(address, len)| {
            Some((address.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?))
        });
        let is_range =
            parsed.is_some_and(|(address, len)| len <= if address.is_ipv4() { 32 } else { 128 });
        if !is_range {
            let field = format!("spec.loadBalancerSourceRanges[{index}]");
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(words::invalid(field, range.as_str(), detail));
        }
    }
}
