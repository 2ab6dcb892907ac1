//! Nodes, with kubectl's columns, the node's pod prefix, memory and pods.

use std::borrow::Cow;
use std::collections::HashMap;

use dormouse_cluster::{FieldError, validate};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure,
    amount::with_unit,
    fields,
    selector::Selector,
    storage,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Status", "string"),
    Column::new("Pods", "string"),
    Column::new("Memory", "string"),
    Column::new("Age", "string"),
    Column::new("Version", "string"),
    Column::new("Prefix", "string"),
    Column::wide("Internal-IP", "string"),
    Column::wide("CPU", "string"),
];

impl Kind for Node {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "node";
    const SHORT: &'static [&'static str] = &["no"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    /// Counts the pods of each node.
    async fn complete(api: &Api, objects: &mut [Value]) -> Result<(), Failure> {
        let (pods, _revision) = storage::list::<Pod>(api, None, &Selector::default()).await?;
        let mut used: HashMap<&str, u64> = HashMap::new();
        for pod in &pods {
            *used.entry(fields::text(pod, "spec.nodeName")).or_default() += 1;
        }
        for node in objects {
            let name = fields::text(node, "metadata.name");
            node["podsUsed"] = json!(used.get(name).copied().unwrap_or(0));
        }
        Ok(())
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let addresses = fields::at(object, "status.addresses").and_then(Value::as_array);
        let internal = addresses
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "InternalIP");
        let text = |path| fields::text(object, path);
        vec![
            json!(text("metadata.name")),
            json!(state(object)),
            json!(pods(object)),
            json!(with_unit(text("status.allocatable.memory"))),
            date_at(object, "metadata.creationTimestamp", now),
            json!(text("status.nodeInfo.kubeletVersion")),
            json!(text("spec.podCIDR")),
            internal.map_or(Value::Null, |one| one["address"].clone()),
            json!(text("status.allocatable.cpu")),
        ]
    }

    fn validate(&self, _old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::node(self)
    }
}

/// Pods of the node and its limit, `3/500`; a watch has only the limit.
fn pods(object: &Value) -> String {
    let limit = fields::text(object, "status.allocatable.pods");
    match object["podsUsed"].as_u64() {
        Some(used) => format!("{used}/{limit}"),
        None => limit.to_owned(),
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
