//! Pods, with kubectl's columns.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, validate};
use dormouse_rbac::User;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    rights::check_pod_of_node,
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

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::pod(self)
    }

    async fn admit(&self, old: Option<&Self>, user: &User, _api: &Api) -> Result<(), Failure> {
        check_pod_of_node(old.unwrap_or(self), user)
    }
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
