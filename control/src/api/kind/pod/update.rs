//! What may change of a pod, as Kubernetes' `ValidatePodUpdate`. Its node and its deletion are set by the server, past the API's updates.

use std::collections::HashSet;

use dormouse_cluster::{FieldError, decode::CauseType};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration};

const OTHER_FIELDS: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
    `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` \
    (allow it to be set to 1 if it was previously negative)";

/// The errors of an update from `old` to `new`.
pub(super) fn check(old: &Pod, new: &Pod) -> Vec<FieldError> {
    if old.spec == new.spec {
        return Vec::new();
    }
    let (Some(old), Some(new)) = (&old.spec, &new.spec) else {
        return vec![forbidden("spec", OTHER_FIELDS)];
    };
    let mut errors = Vec::new();
    images(
        "spec.containers",
        &old.containers,
        &new.containers,
        &mut errors,
    );
    let (before, after) = (&old.init_containers, &new.init_containers);
    let (before, after) = (list(before.as_ref()), list(after.as_ref()));
    images("spec.initContainers", before, after, &mut errors);
    errors.extend(deadline(
        old.active_deadline_seconds,
        new.active_deadline_seconds,
    ));
    errors.extend(tolerations(
        list(old.tolerations.as_ref()),
        list(new.tolerations.as_ref()),
    ));
    if errors.is_empty() && with_allowed(old.clone(), new) != *new {
        errors.push(forbidden("spec", OTHER_FIELDS));
    }
    errors
}

/// The spec before with all of the new one that may change.
fn with_allowed(mut spec: PodSpec, new: &PodSpec) -> PodSpec {
    let init = spec.init_containers.iter_mut().flatten();
    let new_init = new.init_containers.iter().flatten();
    let pairs = spec.containers.iter_mut().zip(&new.containers);
    for (container, new) in pairs.chain(init.zip(new_init)) {
        container.image.clone_from(&new.image);
    }
    spec.active_deadline_seconds = new.active_deadline_seconds;
    spec.tolerations.clone_from(&new.tolerations);
    let grace = &mut spec.termination_grace_period_seconds;
    if grace.is_some_and(|seconds| seconds < 0) && new.termination_grace_period_seconds == Some(1) {
        *grace = Some(1);
    }
    spec
}

/// The containers must be as many, and those that have an image keep one.
fn images(field: &str, old: &[Container], new: &[Container], errors: &mut Vec<FieldError>) {
    if old.len() != new.len() {
        let message = "pod updates may not add or remove containers";
        errors.push(forbidden(field, message));
    }
    let has_image = |one: &Container| one.image.as_deref().is_some_and(|image| !image.is_empty());
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        if has_image(old) && !has_image(new) {
            let message = "is required: a container with an image keeps one";
            errors.push(FieldError::required(
                format!("{field}[{index}].image"),
                message,
            ));
        }
    }
}

/// A deadline is set, or lowered.
fn deadline(old: Option<i64>, new: Option<i64>) -> Option<FieldError> {
    let message = match (old, new) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            "must be between 0 and 2147483647, inclusive"
        }
        (Some(old), Some(new)) if old < new => "must be less than or equal to previous value",
        (Some(_), None) => "must not update from a positive integer to nil value",
        _ => return None,
    };
    Some(FieldError::invalid("spec.activeDeadlineSeconds", message))
}

/// Tolerations are added, and the seconds of those that exist change.
fn tolerations(old: &[Toleration], new: &[Toleration]) -> Option<FieldError> {
    let new: HashSet<_> = new.iter().map(without_seconds).collect();
    let is_kept = |old: &Toleration| new.contains(&without_seconds(old));
    let message = "existing toleration can not be modified except its tolerationSeconds";
    (!old.iter().all(is_kept)).then(|| forbidden("spec.tolerations", message))
}

/// All fields of a toleration but its seconds.
fn without_seconds(one: &Toleration) -> [Option<&str>; 4] {
    [&one.key, &one.operator, &one.value, &one.effect].map(Option::as_deref)
}

fn list<T>(items: Option<&Vec<T>>) -> &[T] {
    items.map(Vec::as_slice).unwrap_or_default()
}

fn forbidden(field: &str, message: &str) -> FieldError {
    FieldError::new(field, CauseType::Forbidden, format!("Forbidden: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec() -> Value {
        json!({"nodeName": "n1", "activeDeadlineSeconds": 9, "terminationGracePeriodSeconds": -1,
            "containers": [{"name": "a", "image": "one", "command": ["x"]}],
            "initContainers": [{"name": "i", "image": "one"}],
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]})
    }

    /// The fields of the errors of a spec of which this field is replaced.
    fn errors(field: &str, value: Value) -> Vec<String> {
        let pod = |spec| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let (mut new, old) = (spec(), pod(spec()));
        new[field] = value;
        let errors = check(&old, &pod(new));
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn what_kubernetes_allows_to_change_may_change() {
        for (field, value) in [
            (
                "containers",
                json!([{"name": "a", "image": "two", "command": ["x"]}]),
            ),
            ("initContainers", json!([{"name": "i", "image": "two"}])),
            ("activeDeadlineSeconds", json!(8)),
            ("terminationGracePeriodSeconds", json!(1)),
            (
                "tolerations",
                json!([{"key": "b"}, {"key": "a", "operator": "Exists", "tolerationSeconds": 6}]),
            ),
            ("nodeName", json!("n1")),
        ] {
            assert_eq!(errors(field, value), [""; 0], "{field}");
        }
    }

    #[test]
    fn nothing_else_of_a_spec_may_change() {
        let container = |more: &str, value: Value| {
            let mut containers = spec()["containers"].clone();
            containers[0][more] = value;
            containers
        };
        let more = json!([{"name": "a", "image": "one", "command": ["x"]}, {"name": "b"}]);
        for (changed, value, field) in [
            ("nodeName", json!("n2"), "spec"),
            ("nodeName", Value::Null, "spec"),
            ("hostNetwork", json!(true), "spec"),
            ("serviceAccountName", json!("root"), "spec"),
            ("terminationGracePeriodSeconds", json!(2), "spec"),
            ("containers", container("command", json!(["y"])), "spec"),
            (
                "containers",
                container("securityContext", json!({"privileged": true})),
                "spec",
            ),
            (
                "containers",
                container("image", json!("")),
                "spec.containers[0].image",
            ),
            ("containers", more, "spec.containers"),
            ("initContainers", json!([]), "spec.initContainers"),
            (
                "activeDeadlineSeconds",
                json!(10),
                "spec.activeDeadlineSeconds",
            ),
            (
                "activeDeadlineSeconds",
                json!(-1),
                "spec.activeDeadlineSeconds",
            ),
            (
                "activeDeadlineSeconds",
                Value::Null,
                "spec.activeDeadlineSeconds",
            ),
            ("tolerations", json!([]), "spec.tolerations"),
            ("tolerations", json!([{"key": "a"}]), "spec.tolerations"),
        ] {
            assert_eq!(errors(changed, value.clone()), [field], "{changed} {value}");
        }
    }
}
