//! Validation of objects before they are stored.

mod container;
mod endpoint_slice;
mod name;
mod probe;
mod rbac;
mod scale;
mod service;
mod traffic;
pub(crate) mod words;

use std::net::Ipv6Addr;

use dormouse_autoscaler::settings::{Cluster, Fault};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};

use crate::app::{AppSpec, PARENT_LABEL};
use crate::{App, FieldError, Object, Revision, VipRange, autoscaler_config, vip};
pub use endpoint_slice::endpoint_slice;
pub use rbac::{cluster_role, cluster_role_binding, role, role_binding};
pub use service::service;
pub use traffic::TARGETS_MAX;

/// Upper limit of an app's `revisionHistoryLimit`: one transaction of the store, which has at most 128 operations, deletes all.
const HISTORY_MAX: u32 = 100;
/// Upper limit of an app's template as JSON, bytes: a change of it writes three, the app's and two revisions', in one request to the
/// store, which takes 1.5 MiB.
const TEMPLATE_BYTES_MAX: usize = 400 << 10;

/// The errors of an app, in place of `old`, in a cluster with these VIP ranges and autoscaling settings. Scale settings are checked only
/// where they are new: those that `old` has stay, also if the cluster's do not allow them any more.
pub fn app(
    old: Option<&App>,
    app: &App,
    ranges: &[VipRange],
    cluster: &Cluster,
) -> Vec<FieldError> {
    let mut errors = name::object(&app.metadata, name::APP_LEN_MAX);
    let spec = &app.spec;
    errors.extend(spec.vip.and_then(|address| outside(address, ranges)));
    errors.extend(port("spec.port", spec.port));
    errors.extend(
        spec.target_port
            .and_then(|number| port("spec.targetPort", number)),
    );
    if spec.timeout().is_zero() {
        errors.push(FieldError::invalid(
            "spec.timeout",
            "must be longer than 0: otherwise every request times out",
        ));
    }
    if spec.progress_deadline_seconds == 0 {
        let message = "must be at least 1: a pod needs time to become ready";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", message));
    }
    if spec.revision_history_limit > HISTORY_MAX {
        let message = format!("must be at most {HISTORY_MAX}");
        errors.push(FieldError::invalid("spec.revisionHistoryLimit", message));
    }
    errors.extend(wake_timeout(spec));
    errors.extend(name::labels("spec.nodeSelector", &spec.node_selector));
    errors.extend(template_size(spec));
    container::check("spec.container", &spec.container, &mut errors);
    if old.is_none_or(|old| !old.is_scaled_as(app)) {
        scale::check(app, cluster, &mut errors);
    }
    traffic::check(&app.key().name, spec, &mut errors);
    errors
}

fn template_size(spec: &AppSpec) -> Option<FieldError> {
    let bytes = serde_json::to_vec(&spec.template()).map_or(0, |json| json.len());
    let message = format!(
        "is {bytes} bytes long with the rest of the template, at most {TEMPLATE_BYTES_MAX} are stored: shorten env and args, or load \
         the data at the start"
    );
    (bytes > TEMPLATE_BYTES_MAX).then(|| FieldError::invalid("spec.container", message))
}

/// The errors of a client's write of a child app, which control has created, and of an app that claims to be one.
pub fn child(old: Option<&App>, new: &App) -> Vec<FieldError> {
    let label = |app: &App| {
        let labels = app.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(PARENT_LABEL).cloned())
    };
    if old.and_then(label) != label(new) {
        let field = format!("metadata.labels.{PARENT_LABEL}");
        let message = "only control sets it, for revisions that get traffic: leave it as it is";
        return vec![FieldError::invalid(field, message)];
    }
    let Some((old, (parent, _))) = old.and_then(|old| Some((old, old.parent()?))) else {
        return Vec::new();
    };
    let is_same =
        old.is_configured_as(new) && old.metadata.owner_references == new.metadata.owner_references;
    if is_same {
        return Vec::new();
    }
    let name = &parent.name;
    let message = format!(
        "this app is a revision of app {name}, which sets it: change the settings of {name}, or its spec.traffic"
    );
    vec![FieldError::invalid("spec", message)]
}

/// The errors of a client's write of a revision: it may change the metadata only.
pub fn revision(old: Option<&Revision>, new: &Revision) -> Vec<FieldError> {
    let mut errors = name::object(&new.metadata, name::LEN_MAX);
    match old {
        None => errors.push(FieldError::invalid(
            "spec",
            "revisions are written when the template of an app changes: apply the app",
        )),
        Some(old) if old.spec != new.spec => errors.push(FieldError::invalid(
            "spec",
            "is immutable: a change of the app makes another revision",
        )),
        Some(_) => {}
    }
    errors
}

/// The errors of an update from `old` to `new`.
pub fn app_update(old: &App, new: &App) -> Vec<FieldError> {
    if old.spec.vip == new.spec.vip {
        return Vec::new();
    }
    let current = old
        .spec
        .vip
        .map_or_else(|| "none".to_owned(), |vip| vip.to_string());
    let message = format!(
        "is immutable (currently {current}): to change the VIP, delete the app and apply it again"
    );
    vec![FieldError::invalid("spec.vip", message)]
}

/// The errors of a pod.
pub fn pod(pod: &Pod) -> Vec<FieldError> {
    let mut errors = name::object(&pod.metadata, name::LEN_MAX);
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    if containers.len() != 1 {
        let message = format!("must have exactly one container, has {}", containers.len());
        errors.push(FieldError::invalid("spec.containers", message));
    }
    for (index, container) in containers.iter().enumerate() {
        container::check(&format!("spec.containers[{index}]"), container, &mut errors);
    }
    errors
}

/// The errors of a node.
pub fn node(node: &Node) -> Vec<FieldError> {
    name::object(&node.metadata, name::LEN_MAX)
}

/// The errors of a namespace.
pub fn namespace(namespace: &Namespace) -> Vec<FieldError> {
    name::object(&namespace.metadata, name::LABEL_LEN_MAX)
}

/// The errors of a ConfigMap: control reads one, and no pod reads any.
pub fn config_map(map: &ConfigMap) -> Vec<FieldError> {
    if map.key() != autoscaler_config::key() {
        let message = format!(
            "the only ConfigMap is {}, the settings of the autoscaler: pods read none",
            autoscaler_config::key()
        );
        return vec![FieldError::invalid("metadata.name", message)];
    }
    let settings = autoscaler_config::settings(map, Cluster::starting_asleep(0));
    let faults = settings
        .err()
        .map_or_else(Vec::new, |refused| refused.faults);
    let error = |fault: &Fault| FieldError::invalid(format!("data.{}", fault.key), fault.message());
    faults.iter().map(error).collect()
}

/// The errors of an event.
pub fn event(event: &Event) -> Vec<FieldError> {
    name::object(&event.metadata, name::LEN_MAX)
}

fn wake_timeout(spec: &AppSpec) -> Option<FieldError> {
    let given = spec.wake_timeout.as_ref()?;
    let message = if given.get().is_zero() {
        "must be longer than 0: otherwise every request to the sleeping app is refused".to_owned()
    } else if given.get() > spec.timeout() {
        let timeout = &spec.timeout;
        format!(
            "is longer than timeout, {timeout}, after which a request ends in any case: raise timeout too"
        )
    } else {
        return None;
    };
    Some(FieldError::invalid("spec.wakeTimeout", message))
}

fn port(field: &str, number: u16) -> Option<FieldError> {
    (number == 0).then(|| FieldError::invalid(field, "0 is not a port: use 1 to 65535"))
}

fn outside(address: Ipv6Addr, ranges: &[VipRange]) -> Option<FieldError> {
    if vip::index_of(ranges, address).is_some() {
        return None;
    }
    let names: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    let message = format!(
        "{address} lies outside this cluster's VIP ranges ({}): choose an address inside, or omit vip to have one allocated",
        names.join(", ")
    );
    Some(FieldError::invalid("spec.vip", message))
}

#[cfg(test)]
mod tests;
