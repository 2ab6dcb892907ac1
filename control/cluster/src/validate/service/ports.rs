//! The ports of a Service.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::text;
use crate::FieldError;
use crate::service::{Type, is_headless};
use crate::validate::{name, words};

/// The protocols of ports.
pub(in crate::validate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// Most characters of a port's name where a number could be written instead, as IANA's names of services.
const NAME_LEN_MAX: usize = 15;

/// Checks the ports one by one, and that they differ.
pub(super) fn check(spec: &ServiceSpec, errors: &mut Vec<FieldError>) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && !is_headless(spec) && Type::of(spec) != Type::ExternalName {
        errors.push(words::required("spec.ports", ""));
    }
    let (mut names, mut numbers, mut node_ports) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        let own = text(port.name.as_ref());
        if own.is_empty() && ports.len() > 1 {
            errors.push(words::required(format!("{field}.name"), ""));
        } else if !own.is_empty() {
            errors.extend(name::check(&format!("{field}.name"), own, 63));
            if !names.insert(own) {
                errors.push(words::duplicate(format!("{field}.name"), own));
            }
        }
        one(&field, port, errors);
        let protocol = text(port.protocol.as_ref());
        if !numbers.insert((protocol, port.port)) {
            let value = json!({"protocol": protocol, "port": port.port});
            errors.push(words::duplicate(field.as_str(), value));
        }
        let node_port = port.node_port.unwrap_or(0);
        if node_port == 0 {
            continue;
        }
        let field = format!("{field}.nodePort");
        if !Type::of(spec).has_node_ports() {
            let detail = format!(
                "may not be used when `type` is '{}'",
                text(spec.type_.as_ref())
            );
            errors.push(words::forbidden(field, &detail));
        } else if !node_ports.insert((protocol, node_port)) {
            errors.push(words::duplicate(field, node_port));
        }
    }
}

fn one(field: &str, port: &ServicePort, errors: &mut Vec<FieldError>) {
    errors.extend(words::port(format!("{field}.port"), port.port));
    let protocol = text(port.protocol.as_ref());
    if !PROTOCOLS.contains(&protocol) {
        errors.push(words::unsupported(
            format!("{field}.protocol"),
            protocol,
            &PROTOCOLS,
        ));
    }
    let field = format!("{field}.targetPort");
    match &port.target_port {
        Some(IntOrString::Int(number)) => errors.extend(words::port(field, *number)),
        Some(IntOrString::String(name)) => errors.extend(named(field, name)),
        None => {}
    }
}

/// The error of a port's name in place of its number.
fn named(field: String, name: &str) -> Option<FieldError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_fine = name.len() <= NAME_LEN_MAX
        && name.chars().all(is_inner)
        && name.contains(|c: char| c.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-');
    let detail = format!(
        "must contain only alphanumeric characters (a-z, 0-9), and hyphens ('-') which must not be adjacent or at an end, at least one \
         letter (a-z), and at most {NAME_LEN_MAX} characters"
    );
    (!is_fine).then(|| words::invalid(field, name, detail))
}
