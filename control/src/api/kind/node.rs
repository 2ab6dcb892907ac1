//! Nodes, with kubectl's columns and the node's pod prefix.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, VipRange, validate};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use serde_json::{Value, json};

use super::Kind;
use crate::api::{
    fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Status", "string"),
    Column::new("Prefix", "string"),
    Column::new("Age", "string"),
    Column::new("Version", "string"),
    Column::wide("Internal-IP", "string"),
    Column::wide("CPU", "string"),
    Column::wide("Memory", "string"),
    Column::wide("Pods", "string"),
];

impl Kind for Node {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "node";
    const SHORT: &'static [&'static str] = &["no"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let addresses = fields::at(object, "status.addresses").and_then(Value::as_array);
        let internal = addresses
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "InternalIP");
        let allocatable =
            |name: &str| json!(fields::text(object, &format!("status.allocatable.{name}")));
        vec![
            json!(fields::text(object, "metadata.name")),
            json!(state(object)),
            json!(fields::text(object, "spec.podCIDR")),
            date_at(object, "metadata.creationTimestamp", now),
            json!(fields::text(object, "status.nodeInfo.kubeletVersion")),
            internal.map_or(Value::Null, |one| one["address"].clone()),
            allocatable("cpu"),
            allocatable("memory"),
            allocatable("pods"),
        ]
    }

    fn set_defaults(&mut self, _old: Option<&Self>) {}

    fn validate(&self, _old: Option<&Self>, _ranges: &[VipRange]) -> Vec<FieldError> {
        validate::node(self)
    }
}

fn state(object: &Value) -> String {
    let conditions = fields::at(object, "status.conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Ready");
    let state = match ready.and_then(|one| one["status"].as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let cordoned = fields::at(object, "spec.unschedulable")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    if cordoned {
        format!("{state},SchedulingDisabled")
    } else {
        state.to_owned()
    }
}
