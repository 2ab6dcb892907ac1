//! Nodes, with kubectl's columns, the node's pod prefix, memory and pods.

use std::borrow::Cow;
use std::collections::HashMap;

use dormouse_cluster::{FieldError, validate};
use dormouse_rbac::{User, node_of};
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, Pod},
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

/// The types of a node's addresses that are names.
const NAMES: [&str; 3] = ["Hostname", "InternalDNS", "ExternalDNS"];

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

    /// Refuses addresses that a node gives itself, and that it could not claim on its stream.
    async fn admit(&self, old: Option<&Self>, user: &User, api: &Api) -> Result<(), Failure> {
        let Some(node) = node_of(user) else {
            return Ok(());
        };
        let known: Vec<&NodeAddress> = old.into_iter().flat_map(addresses).collect();
        let new = addresses(self).filter(|one| !known.contains(one));
        let check = |one: &NodeAddress| {
            if NAMES.contains(&one.type_.as_str()) {
                return (!is_name(&one.address)).then(|| "must be a DNS name".to_owned());
            }
            let refused = api.fleet.check_node_address(node, &one.address).err()?;
            Some(refused.to_string())
        };
        let errors: Vec<FieldError> = new
            .filter_map(check)
            .map(|why| FieldError::invalid("status.addresses", why))
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid::<Self>(node, &errors))
    }
}

fn addresses(node: &Node) -> impl Iterator<Item = &NodeAddress> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    addresses.into_iter().flatten()
}

/// Whether a text has the characters and the length of a DNS name (RFC 1123).
fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(is_of_name)
}

/// Pods of the node and its limit, `3/500`; a watch and a single node have only the limit.
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
