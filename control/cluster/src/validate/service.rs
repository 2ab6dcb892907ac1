//! Validation of Services, with Kubernetes' rules, fields and words.

mod addresses;
mod ports;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

pub(super) use addresses::special;
pub(super) use ports::PROTOCOLS;

use super::{name, words};
use crate::FieldError;
use crate::service::{ServiceRanges, Type, has_health_port, is_external, is_headless, spec_of};

/// Longest time that a client's connections go to one endpoint, in seconds: a day.
const AFFINITY_MAX_S: i32 = 86_400;

/// The errors of a Service, in place of `old`.
pub fn service(
    old: Option<&Service>,
    service: &Service,
    ranges: &ServiceRanges,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = &service.metadata;
    errors.extend(name::dns_1035(
        "metadata.name",
        metadata.name.as_deref().unwrap_or_default(),
    ));
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    errors.extend(name::check("metadata.namespace", namespace, 63));
    let spec = spec_of(service);
    type_(&spec, &mut errors);
    ports::check(&spec, &mut errors);
    errors.extend(name::labels(
        "spec.selector",
        &spec.selector.clone().unwrap_or_default(),
    ));
    affinity(&spec, &mut errors);
    addresses::check(&spec, ranges, &mut errors);
    traffic(&spec, &mut errors);
    load_balancer(&spec, &mut errors);
    if let Some(old) = old {
        update(&spec_of(old), &spec, &mut errors);
    }
    errors
}

fn text(field: Option<&String>) -> &str {
    field.map_or("", String::as_str)
}

fn type_(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let named = text(spec.type_.as_ref());
    if !Type::NAMES.contains(&named) {
        errors.push(words::unsupported("spec.type", named, &Type::NAMES));
    }
    let has_name = !text(spec.external_name.as_ref()).is_empty();
    if Type::of(spec) == Type::ExternalName {
        if has_name {
            let target = text(spec.external_name.as_ref()).trim_end_matches('.');
            errors.extend(name::check("spec.externalName", target, name::LEN_MAX));
        } else {
            errors.push(words::required("spec.externalName", ""));
        }
        for (field, is_set) in [
            ("spec.clusterIPs", spec.cluster_ips.is_some()),
            ("spec.ipFamilies", spec.ip_families.is_some()),
            ("spec.ipFamilyPolicy", spec.ip_family_policy.is_some()),
        ] {
            if is_set {
                errors.push(words::forbidden(
                    field,
                    "may not be set for ExternalName services",
                ));
            }
        }
    }
    if is_headless(spec) && Type::of(spec).has_node_ports() {
        let detail = format!("may not be set to 'None' for {named} services");
        errors.push(words::invalid("spec.clusterIPs[0]", "None", detail));
    }
}

fn affinity(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let affinity = text(spec.session_affinity.as_ref());
    if !["ClientIP", "None"].contains(&affinity) {
        let field = "spec.sessionAffinity";
        errors.push(words::unsupported(field, affinity, &["ClientIP", "None"]));
    }
    let config = spec.session_affinity_config.as_ref();
    if affinity == "None" && config.is_some() {
        let detail = "must not be set when session affinity is None";
        errors.push(words::forbidden("spec.sessionAffinityConfig", detail));
    }
    let timeout = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    if affinity == "ClientIP"
        && let Some(timeout) = timeout.filter(|timeout| !(1..=AFFINITY_MAX_S).contains(timeout))
    {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let detail = format!("must be greater than 0 and less than or equal to {AFFINITY_MAX_S}");
        errors.push(words::invalid(field, timeout, detail));
    }
}

/// The policies of traffic from inside and outside.
fn traffic(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let policies = ["Cluster", "Local"];
    let external = text(spec.external_traffic_policy.as_ref());
    if is_external(spec) {
        if !policies.contains(&external) {
            let field = "spec.externalTrafficPolicy";
            errors.push(words::unsupported(field, external, &policies));
        }
    } else if !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(words::invalid(
            "spec.externalTrafficPolicy",
            external,
            detail,
        ));
    }
    let internal = text(spec.internal_traffic_policy.as_ref());
    let may_lack = Type::of(spec) == Type::ExternalName && internal.is_empty();
    if !may_lack && !policies.contains(&internal) {
        let field = "spec.internalTrafficPolicy";
        errors.push(words::unsupported(field, internal, &policies));
    }
    let near = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    if let Some(distribution) = &spec.traffic_distribution
        && !near.contains(&distribution.as_str())
    {
        errors.push(words::unsupported(
            "spec.trafficDistribution",
            distribution,
            &near,
        ));
    }
    let health = spec.health_check_node_port.unwrap_or(0);
    if health != 0 && !has_health_port(spec) {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(words::invalid("spec.healthCheckNodePort", health, detail));
    }
}

/// The fields that only load balancers have.
fn load_balancer(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    addresses::source_ranges(spec, errors);
    if Type::of(spec) == Type::LoadBalancer {
        return;
    }
    let fields = [
        (
            "loadBalancerSourceRanges",
            spec.load_balancer_source_ranges
                .as_ref()
                .is_some_and(|all| !all.is_empty()),
        ),
        (
            "allocateLoadBalancerNodePorts",
            spec.allocate_load_balancer_node_ports.is_some(),
        ),
        ("loadBalancerClass", spec.load_balancer_class.is_some()),
    ];
    for (field, is_set) in fields {
        if is_set {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            errors.push(words::forbidden(format!("spec.{field}"), detail));
        }
    }
}

fn update(old: &ServiceSpec, new: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let fixed = "may not change once set";
    if [old, new]
        .iter()
        .all(|spec| Type::of(spec) != Type::ExternalName)
    {
        let address =
            |spec: &ServiceSpec, index: usize| spec.cluster_ips.as_ref()?.get(index).cloned();
        let family =
            |spec: &ServiceSpec, index: usize| spec.ip_families.as_ref()?.get(index).cloned();
        for index in 0..2 {
            let (before, after) = (address(old, index), address(new, index));
            let is_changed = before.is_some() && after != before;
            // The second address is released with its family.
            if is_changed && (index == 0 || after.is_some()) {
                let field = format!("spec.clusterIPs[{index}]");
                errors.push(words::invalid(field, after.unwrap_or_default(), fixed));
            }
            let (before, after) = (family(old, index), family(new, index));
            if before.is_some() && after != before && (index == 0 || after.is_some()) {
                let field = format!("spec.ipFamilies[{index}]");
                errors.push(words::invalid(field, after.unwrap_or_default(), fixed));
            }
        }
    }
    if has_health_port(old)
        && has_health_port(new)
        && old.health_check_node_port != new.health_check_node_port
    {
        let number = new.health_check_node_port.unwrap_or(0);
        errors.push(words::invalid(
            "spec.healthCheckNodePort",
            number,
            "field is immutable",
        ));
    }
    let are_balanced = [old, new]
        .iter()
        .all(|spec| Type::of(spec) == Type::LoadBalancer);
    if are_balanced && old.load_balancer_class != new.load_balancer_class {
        let class = text(new.load_balancer_class.as_ref());
        errors.push(words::invalid("spec.loadBalancerClass", class, fixed));
    }
}

#[cfg(test)]
mod tests;
