//! Validation of containers, which nodes run as processes without images. What a node would ignore is refused.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use serde_json::Value;

use super::probe;
use crate::{FieldError, quantity};

/// Fields that nodes use, and those that cannot change what a process without an image does.
const SUPPORTED: [&str; 13] = [
    "args",
    "command",
    "env",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
];
const RESOURCES: [&str; 2] = ["limits", "requests"];
/// Limit of the length of a port's name, as in Kubernetes.
const PORT_NAME_MAX: usize = 15;

/// Adds the errors of the container at `field`.
pub(super) fn check(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    command(field, container, errors);
    environment(field, container, errors);
    let value = serde_json::to_value(container).unwrap_or_default();
    supported(field, &value, &SUPPORTED, errors);
    ports(field, container, errors);
    let probes = [
        ("readinessProbe", &container.readiness_probe),
        ("livenessProbe", &container.liveness_probe),
    ];
    for (name, given) in probes {
        let field = format!("{field}.{name}");
        supported(&field, &value[name], &probe::SUPPORTED, errors);
        if let Some(given) = given {
            probe::check(&field, container, given, &value[name], errors);
        }
    }
    let resources_field = format!("{field}.resources");
    supported(&resources_field, &value["resources"], &RESOURCES, errors);
    if let Some(given) = &container.resources {
        resources(&resources_field, given, errors);
    }
}

fn command(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    let command = container.command.as_deref().unwrap_or_default();
    if command.first().is_none_or(String::is_empty) {
        errors.push(FieldError::required(
            format!("{field}.command"),
            "is required, such as [python3, -m, http.server]: without images there is no default",
        ));
    }
    let args = container.args.as_deref().unwrap_or_default();
    for (name, words) in [("command", command), ("args", args)] {
        if words.iter().any(|word| word.contains('\0')) {
            errors.push(nul(format!("{field}.{name}")));
        }
    }
    let folder = container.working_dir.as_deref().unwrap_or("/");
    if !folder.starts_with('/') || folder.contains('\0') {
        let message = "must be an absolute path, such as /srv";
        errors.push(FieldError::invalid(format!("{field}.workingDir"), message));
    }
}

/// A process gets its words and variables as C strings.
fn nul(field: String) -> FieldError {
    FieldError::invalid(field, "contains a NUL character")
}

fn ports(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    let (mut numbers, mut names) = (HashSet::new(), HashSet::new());
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let number = port.container_port;
        let message = if !(1..=65_535).contains(&number) {
            Some("use 1 to 65535".to_owned())
        } else if numbers.insert((number, port.protocol.as_deref().unwrap_or("TCP"))) {
            None
        } else {
            Some(format!(
                "{number} is the number of an earlier port: remove one"
            ))
        };
        errors.extend(
            message.map(|message| FieldError::invalid(format!("{field}.containerPort"), message)),
        );
        let Some(name) = port.name.as_deref() else {
            continue;
        };
        let message = if !is_port_name(name) {
            "is no name of a port: use lower-case letters, digits and single dashes inside, with a letter, at most 15 characters"
        } else if names.insert(name) {
            continue;
        } else {
            "is the name of an earlier port: choose another one"
        };
        let message = format!("`{}` {message}", name.escape_debug());
        errors.push(FieldError::invalid(format!("{field}.name"), message));
    }
}

/// Whether this is a service name of IANA, as Kubernetes requires it of ports.
fn is_port_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        !part.is_empty() && part.chars().all(inner)
    };
    let has_letter = name.contains(|c: char| c.is_ascii_lowercase());
    name.len() <= PORT_NAME_MAX && has_letter && name.split('-').all(is_part)
}

fn environment(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let name = variable.name.as_str();
        let is_wrong = |c: char| c == '=' || c.is_control();
        let message = if name.is_empty() || name.contains(is_wrong) {
            Some("is not a valid environment variable name: use letters, digits and underscores")
        } else if names.insert(name) {
            None
        } else {
            Some("is the name of an earlier variable: remove one")
        };
        errors.extend(message.map(|message| {
            let message = format!("`{}` {message}", name.escape_debug());
            FieldError::invalid(format!("{field}.env[{index}].name"), message)
        }));
        if variable
            .value
            .as_deref()
            .is_some_and(|value| value.contains('\0'))
        {
            errors.push(nul(format!("{field}.env[{index}].value")));
        }
        if variable.value_from.is_some() {
            let message = "is not supported: set value instead";
            errors.push(FieldError::invalid(
                format!("{field}.env[{index}].valueFrom"),
                message,
            ));
        }
    }
}

/// Adds an error for each field of an object that is not in the list.
pub(super) fn supported(field: &str, object: &Value, known: &[&str], errors: &mut Vec<FieldError>) {
    let names = object
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys);
    for name in names.filter(|name| !known.contains(&name.as_str())) {
        let message = format!(
            "is not supported: a node runs the command as a process; supported are {}",
            known.join(", ")
        );
        errors.push(FieldError::invalid(format!("{field}.{name}"), message));
    }
}

fn resources(field: &str, resources: &ResourceRequirements, errors: &mut Vec<FieldError>) {
    let nothing = std::collections::BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&nothing);
    let requests = resources.requests.as_ref().unwrap_or(&nothing);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts {
            let message = if !["cpu", "memory"].contains(&name.as_str()) {
                "is not supported: nodes have cpu and memory".to_owned()
            } else if quantity::is_too_large(amount) {
                format!("`{}` is too large: use at most 8Pi", amount.0)
            } else if quantity::milli_value(amount).is_none_or(|value| value < 0) {
                format!(
                    "`{}` is not a quantity: write a number of 0 or more and a unit, such as 250m, 1.5 or 64Mi",
                    amount.0
                )
            } else {
                continue;
            };
            errors.push(FieldError::invalid(
                format!("{field}.{kind}.{name}"),
                message,
            ));
        }
    }
    for (name, request) in requests {
        let over = limits
            .get(name)
            .filter(|limit| quantity::milli_value(request) > quantity::milli_value(limit));
        if let Some(limit) = over {
            let message = format!("`{}` is above the limit, `{}`", request.0, limit.0);
            errors.push(FieldError::invalid(
                format!("{field}.requests.{name}"),
                message,
            ));
        }
    }
}
