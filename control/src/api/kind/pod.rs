//! Pods, with kubectl's columns.

mod update;

use std::borrow::Cow;
use std::collections::HashSet;

use dormouse_cluster::pod::{has_host_network, node_of};
use dormouse_cluster::{FieldError, Key, validate};
use dormouse_nodes::Place;
use dormouse_rbac::User;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    rights::check_pod_of_node,
    storage,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Ready", "string"),
    Column::new("Status", "string"),
    Column::new("Restarts", "integer"),
    Column::new("Age", "string"),
    Column::wide("IP", "string"),
    Column::wide("Node", "string"),
];

impl Kind for Pod {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "pod";
    const SHORT: &'static [&'static str] = &["po"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let or_none = |path| match fields::text(object, path) {
            "" => "<none>",
            text => text,
        };
        let total = fields::at(object, "spec.containers")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        let ready = if is_ready(object) { total } else { 0 };
        vec![
            json!(fields::text(object, "metadata.name")),
            json!(format!("{ready}/{total}")),
            json!(state(object)),
            json!(restarts(object)),
            date_at(object, "metadata.creationTimestamp", now),
            json!(or_none("status.podIP")),
            json!(or_none("spec.nodeName")),
        ]
    }

    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {
        self.status
            .get_or_insert_default()
            .phase
            .get_or_insert_with(|| "Pending".to_owned());
    }

    fn validate(&self, old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        let mut errors = validate::pod(self);
        errors.extend(old.into_iter().flat_map(|old| update::check(old, self)));
        errors
    }

    async fn admit(&self, old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        check_pod_of_node(old.unwrap_or(self), user)?;
        check_addresses(self, old, api).await
    }
}

/// Refuses new addresses that the pod's node cannot give it. Control connects to them.
async fn check_addresses(pod: &Pod, old: Option<&Pod>, api: &Api) -> Result<(), Failure> {
    let known: HashSet<&str> = old.into_iter().flat_map(addresses).collect();
    let mut new = addresses(pod);
    new.retain(|address| !known.contains(address));
    if new.is_empty() {
        return Ok(());
    }
    let name = node_of(pod).unwrap_or_default();
    let node = storage::find::<Node>(api, &Key::cluster_scoped(name)).await?;
    let place = node.as_ref().map(Place::of).unwrap_or_default();
    let host_network = has_host_network(pod);
    let check = |text: &&str| {
        let Ok(address) = text.parse() else {
            return Some("must be an IP address".to_owned());
        };
        let place = (name, Some(place.clone()));
        let checked = api.fleet.check_pod_address(place, address, host_network);
        checked.err().map(|refused| refused.to_string())
    };
    let Some(why) = new.iter().find_map(check) else {
        return Ok(());
    };
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let error = FieldError::invalid("status.podIPs", why);
    Err(Failure::invalid::<Pod>(name, &[error]))
}

/// The addresses of a pod, as they are written.
fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let several = status.pod_ips.iter().flatten().map(|one| one.ip.as_str());
    let all = several.chain(status.pod_ip.as_deref());
    all.filter(|text| !text.is_empty()).collect()
}

fn is_ready(object: &Value) -> bool {
    let conditions = fields::at(object, "status.conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn restarts(object: &Value) -> u64 {
    let containers = fields::at(object, "status.containerStatuses").and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .filter_map(|one| one["restartCount"].as_u64())
        .sum()
}

/// kubectl's column STATUS: the reason of a waiting container, else the pod's reason, else its phase.
fn state(object: &Value) -> &str {
    if fields::at(object, "metadata.deletionTimestamp").is_some() {
        return "Terminating";
    }
    let containers = fields::at(object, "status.containerStatuses").and_then(Value::as_array);
    let waits = containers
        .into_iter()
        .flatten()
        .find_map(|one| fields::at(one, "state.waiting.reason")?.as_str());
    let reason = Some(fields::text(object, "status.reason")).filter(|reason| !reason.is_empty());
    waits
        .or(reason)
        .unwrap_or_else(|| fields::text(object, "status.phase"))
}
