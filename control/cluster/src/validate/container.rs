//! Validation of containers, which nodes run as processes without images. What a node would ignore is refused.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use serde_json::Value;

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
const PROBE: [&str; 7] = [
    "failureThreshold",
    "httpGet",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "tcpSocket",
    "timeoutSeconds",
];
const HTTP_GET: [&str; 3] = ["path", "port", "scheme"];
const TCP_SOCKET: [&str; 1] = ["port"];
const RESOURCES: [&str; 2] = ["limits", "requests"];

/// Adds the errors of the container at `field`.
pub(super) fn check(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    command(field, container, errors);
    environment(field, container, errors);
    let value = serde_json::to_value(container).unwrap_or_default();
    supported(field, &value, &SUPPORTED, errors);
    for name in ["readinessProbe", "livenessProbe"] {
        probe(&format!("{field}.{name}"), &value[name], errors);
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
    let mut words = command.iter().chain(container.args.iter().flatten());
    if words.any(|word| word.contains('\0')) {
        errors.push(FieldError::invalid(
            format!("{field}.command"),
            "contains a NUL character",
        ));
    }
}

fn environment(field: &str, container: &Container, errors: &mut Vec<FieldError>) {
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() || variable.name.contains(['=', '\0']) {
            let message = format!(
                "`{}` is not a valid environment variable name",
                variable.name
            );
            errors.push(FieldError::invalid(
                format!("{field}.env[{index}].name"),
                message,
            ));
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
fn supported(field: &str, object: &Value, known: &[&str], errors: &mut Vec<FieldError>) {
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

fn probe(field: &str, probe: &Value, errors: &mut Vec<FieldError>) {
    supported(field, probe, &PROBE, errors);
    supported(
        &format!("{field}.httpGet"),
        &probe["httpGet"],
        &HTTP_GET,
        errors,
    );
    supported(
        &format!("{field}.tcpSocket"),
        &probe["tcpSocket"],
        &TCP_SOCKET,
        errors,
    );
    let scheme = &probe["httpGet"]["scheme"];
    if scheme.as_str().is_some_and(|scheme| scheme != "HTTP") {
        let message = format!("{scheme} is not supported: use HTTP");
        errors.push(FieldError::invalid(
            format!("{field}.httpGet.scheme"),
            message,
        ));
    }
    if probe["successThreshold"]
        .as_i64()
        .is_some_and(|times| times != 1)
    {
        let message = "is not supported: one success is enough";
        errors.push(FieldError::invalid(
            format!("{field}.successThreshold"),
            message,
        ));
    }
    for (name, min) in [
        ("failureThreshold", 1),
        ("periodSeconds", 1),
        ("timeoutSeconds", 1),
        ("initialDelaySeconds", 0),
    ] {
        if probe[name].as_i64().is_some_and(|given| given < min) {
            let message = format!("must be at least {min}");
            errors.push(FieldError::invalid(format!("{field}.{name}"), message));
        }
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
