//! The messages of extenders, version v1: fields have the names of Go's structs, and are read in any case, as Go does.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{Extender, Status, Vetoes};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names;
use crate::state::Asked;

/// The question about nodes: their objects, or their names for an extender that knows them.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Args<'a> {
    pod: &'a Pod,
    nodes: Option<List<'a>>,
    node_names: Option<Vec<&'a str>>,
}

#[derive(Serialize)]
struct List<'a> {
    items: Vec<&'a Node>,
}

/// The binding of a pod.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct BindingArgs<'a> {
    pub(super) pod_name: &'a str,
    pub(super) pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: &'a str,
    pub(super) node: &'a str,
}

#[derive(Deserialize)]
pub(super) struct BindingResult {
    #[serde(default)]
    pub(super) error: String,
}

/// The score of a node, from 0 to 10.
#[derive(Deserialize)]
pub(super) struct Priority {
    pub(super) host: String,
    pub(super) score: i64,
}

#[derive(Deserialize)]
struct FilterResult {
    nodes: Option<Items>,
    nodenames: Option<Vec<String>>,
    failednodes: Option<BTreeMap<String, String>>,
    failedandunresolvablenodes: Option<BTreeMap<String, String>>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Items {
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// What a filter left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filtered {
    pub(super) passed: BTreeSet<String>,
    pub(super) vetoes: Vetoes,
}

impl<'a> Args<'a> {
    pub(super) fn new(extender: &Extender, pod: &'a Pod, nodes: &[&'a Asked]) -> Self {
        let names = nodes.iter().map(|node| node.name.as_str());
        let objects = nodes.iter().filter_map(|node| node.object.as_deref());
        if extender.node_cache_capable {
            return Self {
                pod,
                nodes: None,
                node_names: Some(names.collect()),
            };
        }
        Self {
            pod,
            nodes: Some(List {
                items: objects.collect(),
            }),
            node_names: None,
        }
    }
}

/// Reads a message whose fields may have any case.
pub(super) fn decode<T: DeserializeOwned>(message: Value) -> Result<T, String> {
    let read = serde_json::from_value(lowercase(message));
    read.map_err(|error| format!("the reply cannot be read: {error}"))
}

/// A message with lowercase names of its own fields, and of those of its items.
fn lowercase(message: Value) -> Value {
    match message {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value));
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(lowercase).collect(),
        other => other,
    }
}

/// What a reply leaves of the nodes that were asked about. One that is in no list of the reply is rejected without a verdict.
pub(super) fn filtered(
    reply: Value,
    is_cache_capable: bool,
    nodes: &[&Asked],
) -> Result<Filtered, String> {
    let result: FilterResult = decode(reply)?;
    if !result.error.is_empty() {
        return Err(result.error);
    }
    let listed = match (result.nodenames, result.nodes) {
        (Some(names), _) if is_cache_capable => names,
        (_, Some(list)) => {
            let items = list.items.into_iter().flatten();
            items.map(|item| item.metadata.name).collect()
        }
        _ => Vec::new(),
    };
    let asked = names(nodes);
    if let Some(strange) = listed.iter().find(|name| !asked.contains(*name)) {
        return Err(format!(
            "the reply has the node {strange:?}, which was not asked about"
        ));
    }
    let passed: BTreeSet<_> = listed.into_iter().collect();
    let failed = result.failednodes.unwrap_or_default();
    let unresolvable = result.failedandunresolvablenodes.unwrap_or_default();
    let verdict = |name: &String| {
        let status = unresolvable.get(name).map(Status::unresolvable);
        status.or_else(|| Some(Status::unschedulable(failed.get(name)?)))
    };
    let rejected = asked.into_iter().filter(|name| !passed.contains(name));
    let vetoes = rejected.map(|name| {
        let verdict = verdict(&name);
        (name, verdict)
    });
    Ok(Filtered {
        vetoes: vetoes.collect(),
        passed,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(reply: Value, is_cache_capable: bool) -> Result<Filtered, String> {
        let asked = ["a", "b", "c"].map(|name| Asked {
            name: name.to_owned(),
            object: None,
        });
        filtered(reply, is_cache_capable, &asked.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_leaves_the_listed_nodes_and_the_others_have_their_verdicts() {
        let lists = json!({"nodeNames": ["a"], "FailedNodes": {"b": "no gpu", "c": "no gpu"},
            "failedAndUnresolvableNodes": {"c": "never"}});
        let left = read(lists.clone(), true).unwrap();
        assert_eq!(left.passed, BTreeSet::from(["a".to_owned()]));
        let verdict = |name: &str| left.vetoes[name].clone().unwrap();
        assert_eq!(verdict("b"), Status::unschedulable("no gpu"));
        assert_eq!(verdict("c"), Status::unresolvable("never"));
        assert!(read(lists, false).unwrap().passed.is_empty());
        let objects = json!({"Nodes": {"items": [{"metadata": {"name": "b"}}]}, "NodeNames": null});
        let left = read(objects, true).unwrap();
        assert_eq!(left.passed, BTreeSet::from(["b".to_owned()]));
        assert_eq!(left.vetoes["a"], None);
    }

    #[test]
    fn a_reply_with_an_error_or_a_strange_node_is_refused() {
        assert_eq!(read(json!({"Error": "down"}), true), Err("down".to_owned()));
        let strange = read(json!({"NodeNames": ["z"]}), true).unwrap_err();
        assert!(strange.contains("\"z\""), "{strange}");
        assert!(read(json!({"NodeNames": 7}), true).is_err());
    }
}
