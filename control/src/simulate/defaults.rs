//! What the API server sets in objects that are written by hand, as far as decisions read it.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::Value;

const DEFAULT_NAMESPACE: &str = "default";
/// Kinds whose objects have a namespace.
const NAMESPACED: [&str; 8] = [
    "Pod",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
];
/// Kinds with quantities in maps of these names; a number may stand in place of the text.
const MEASURED: [&str; 4] = ["Pod", "Node", "PersistentVolume", "PersistentVolumeClaim"];
const QUANTITIES: [&str; 6] = [
    "requests",
    "limits",
    "overhead",
    "allocatable",
    "allocatedResources",
    "capacity",
];

/// Sets the namespace of an object, and makes its quantities texts. The error is the reason for which it has no use here.
pub(super) fn set(kind: &str, value: &mut Value) -> Result<(), String> {
    if NAMESPACED.contains(&kind)
        && let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        meta.entry("namespace")
            .or_insert_with(|| DEFAULT_NAMESPACE.into());
    }
    if MEASURED.contains(&kind) {
        quote_quantities(value);
    }
    if kind == "PriorityClass" {
        return Err("priority classes are not resolved: give pods their spec.priority".to_owned());
    }
    Ok(())
}

fn quote_quantities(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if QUANTITIES.contains(&name.as_str())
                    && let Some(quantities) = field.as_object_mut()
                {
                    let numbers = quantities.values_mut().filter(|one| one.is_number());
                    numbers.for_each(|number| *number = number.to_string().into());
                }
                quote_quantities(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quote_quantities),
        _ => {}
    }
}

/// Sets requests and host ports of a pod. The error names what only the API server could set.
pub(super) fn set_of_pod(pod: &mut Pod) -> Result<(), String> {
    let Some(spec) = &mut pod.spec else {
        return Ok(());
    };
    if spec.priority.is_none()
        && let Some(class) = &spec.priority_class_name
    {
        return Err(format!(
            "spec.priority is missing: the API server sets it by the priority class {class}"
        ));
    }
    let on_host = spec.host_network == Some(true);
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        set_of_container(container, on_host);
    }
    Ok(())
}

/// A missing request is the limit. On the host's network a port of a container is one of the host.
fn set_of_container(container: &mut Container, on_host: bool) {
    for port in container.ports.iter_mut().flatten().filter(|_| on_host) {
        if port.host_port.is_none_or(|port| port == 0) {
            port.host_port = Some(port.container_port);
        }
    }
    let Some(resources) = &mut container.resources else {
        return;
    };
    for (name, limit) in resources.limits.clone().unwrap_or_default() {
        let requests = resources.requests.get_or_insert_default();
        requests.entry(name).or_insert(limit);
    }
}
