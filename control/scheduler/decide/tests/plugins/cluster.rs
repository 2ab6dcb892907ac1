//! A random cluster of API objects.

use std::collections::BTreeMap;

use dormouse_scheduler_decide::Snapshot;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodSpec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::storage::Storage;
use crate::workloads::Workloads;

const NODES_MAX: usize = 7;
const PODS_MAX: usize = 16;

pub(crate) type Labels = BTreeMap<String, String>;

/// A cluster. Pods are bound, and stand in the order in which they came, as nodes do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) workloads: Workloads,
    pub(crate) storage: Storage,
}

impl Cluster {
    /// The cluster as our code has it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for node in &self.nodes {
            snapshot.set_node(dormouse_scheduler_decide::Node::parse(node).unwrap());
        }
        for pod in &self.pods {
            snapshot.set_pod(dormouse_scheduler_decide::Pod::parse(pod).unwrap());
        }
        for namespace in &self.namespaces {
            snapshot.set_namespace(namespace);
        }
        self.workloads.set(&mut snapshot);
        self.storage.set(&mut snapshot);
        snapshot.refresh();
        snapshot
    }

    pub(crate) fn with_namespaces(mut self, namespaces: &[(&str, Value)]) -> Self {
        let objects = namespaces.iter();
        let objects = objects
            .map(|(name, labels)| object(json!({"metadata": {"name": name, "labels": labels}})));
        self.namespaces = objects.collect();
        self
    }

    /// One that has no object has no labels.
    pub(crate) fn namespace_labels(&self, name: &str) -> Labels {
        let mut all = self.namespaces.iter().map(|one| &one.metadata);
        let found = all.find(|meta| meta.name.as_deref() == Some(name));
        found
            .and_then(|meta| meta.labels.clone())
            .unwrap_or_default()
    }

    pub(crate) fn pods_on<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
        let on = move |pod: &&Pod| spec(pod).node_name.as_deref() == Some(name(node));
        self.pods.iter().filter(on)
    }
}

pub(crate) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

pub(crate) fn labels(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}

pub(crate) fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

pub(crate) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The pod to schedule, of a template.
pub(crate) fn incoming(template: impl Strategy<Value = Value>) -> impl Strategy<Value = Pod> {
    template.prop_map(|template| pod(template, "new", None))
}

/// A cluster of nodes and pods of templates, which lack their names.
pub(crate) fn cluster(
    node_template: impl Strategy<Value = Value>,
    pod_template: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Cluster> {
    let nodes = prop::collection::vec(node_template, 1..=NODES_MAX);
    let pods = prop::collection::vec((any::<Index>(), pod_template), 0..=PODS_MAX);
    (nodes, pods).prop_map(|(nodes, pods)| {
        let len = nodes.len();
        let pods = pods.into_iter().enumerate();
        Cluster {
            nodes: nodes.into_iter().enumerate().map(node).collect(),
            pods: pods
                .map(|(nth, (on, one))| pod(one, &format!("p{nth}"), Some(on.index(len))))
                .collect(),
            ..Cluster::default()
        }
    })
}

fn node((nth, mut template): (usize, Value)) -> Node {
    let name = format!("n{nth}");
    template["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone().into();
    template["metadata"]["name"] = name.into();
    object(template)
}

fn pod(mut template: Value, name: &str, on: Option<usize>) -> Pod {
    template["metadata"]["name"] = name.into();
    if template["metadata"]["namespace"].is_null() {
        template["metadata"]["namespace"] = "default".into();
    }
    if template["spec"]["containers"].is_null() {
        template["spec"]["containers"] = json!([{"name": "c"}]);
    }
    if let Some(on) = on {
        template["spec"]["nodeName"] = format!("n{on}").into();
    }
    object(template)
}

/// One of some values.
pub(crate) fn one_of<T: Clone + std::fmt::Debug + 'static>(
    values: &'static [T],
) -> impl Strategy<Value = T> {
    select(values)
}

type Choices = &'static [(&'static str, &'static [&'static str])];

/// Some of the keys of an object, each with one of its values.
pub(crate) fn some_of(choices: Choices) -> impl Strategy<Value = Value> {
    picks(choices, 0.5)
}

/// The same, but few keys are missing.
pub(crate) fn most_of(choices: Choices) -> impl Strategy<Value = Value> {
    picks(choices, 0.9)
}

fn picks(choices: Choices, share: f64) -> impl Strategy<Value = Value> {
    let picks = prop::collection::vec(prop::option::weighted(share, any::<Index>()), choices.len());
    picks.prop_map(|picks| {
        let picked = choices
            .iter()
            .zip(picks)
            .filter_map(|((key, values), pick)| {
                Some((
                    (*key).to_owned(),
                    Value::from(values[pick?.index(values.len())]),
                ))
            });
        Value::Object(picked.collect())
    })
}

/// An array of values, at most `len_max`.
pub(crate) fn array(
    item: impl Strategy<Value = Value>,
    len_max: usize,
) -> impl Strategy<Value = Value> {
    prop::collection::vec(item, 0..=len_max).prop_map(Value::Array)
}
