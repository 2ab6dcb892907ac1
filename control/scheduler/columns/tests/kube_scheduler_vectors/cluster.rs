//! The cluster of a scenario, and what changes it.

use std::collections::BTreeMap;

use dormouse_scheduler_columns::Engine;
use dormouse_scheduler_decide::{ImageCensus, Node, Pod, PodKey, Profile, Snapshot};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::replay::items;

/// The parts of the second copy of a cluster.
const PARTS: usize = 3;

/// A cluster, and its pods.
pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    /// The same cluster in parts.
    pub(crate) parts: [Snapshot; PARTS],
    /// The same cluster with an index.
    pub(crate) engine: Engine,
    pub(crate) scheduler_name: String,
    images: ImageCensus,
    nodes: BTreeMap<String, Node>,
    /// The pods that are in the cluster.
    present: BTreeMap<String, Pod>,
}

fn list<'a>(input: &'a Value, name: &str) -> &'a [Value] {
    input.get(name).map_or(&[], items)
}

/// The objects of a list of the input.
fn all<T: DeserializeOwned>(input: &Value, name: &str) -> Vec<T> {
    list(input, name).iter().map(object).collect()
}

fn set_workloads(snapshot: &mut Snapshot, input: &Value) {
    for one in all(input, "services") {
        snapshot.set_service(&one);
    }
    for one in all(input, "replicationControllers") {
        snapshot.set_replication_controller(&one);
    }
    for one in all(input, "replicaSets") {
        snapshot.set_replica_set(&one);
    }
    for one in all(input, "statefulSets") {
        snapshot.set_stateful_set(&one);
    }
}

fn set_volumes(snapshot: &mut Snapshot, input: &Value) {
    for one in all(input, "persistentVolumes") {
        snapshot.set_volume(&one).unwrap();
    }
    for one in all(input, "persistentVolumeClaims") {
        snapshot.set_claim(&one).unwrap();
    }
    for one in all(input, "storageClasses") {
        snapshot.set_storage_class(&one).unwrap();
    }
    for one in all(input, "csiNodes") {
        snapshot.set_csi_node(&one).unwrap();
    }
}

fn object<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

pub(crate) fn pod(value: &Value) -> Pod {
    let pod: ApiPod = object(value);
    Pod::parse(&pod).unwrap()
}

pub(crate) fn node(value: &Value) -> Node {
    Node::parse(&object(value)).unwrap()
}

pub(crate) fn profile(input: &Value) -> Profile {
    let profile = input
        .get("profile")
        .map(|profile| Profile::parse(profile).unwrap());
    let percentage = input
        .get("percentageOfNodesToScore")
        .map_or(100, |percentage| {
            i32::try_from(percentage.as_i64().unwrap()).unwrap()
        });
    profile.unwrap_or_default().with_percentage(percentage)
}

impl Cluster {
    pub(crate) fn new(input: &Value) -> Self {
        let profile = profile(input);
        let mut cluster = Self {
            snapshot: Snapshot::default(),
            parts: <[Snapshot; PARTS]>::default(),
            scheduler_name: profile.name().to_owned(),
            engine: Engine::new(vec![profile], 0),
            images: ImageCensus::default(),
            nodes: BTreeMap::new(),
            present: BTreeMap::new(),
        };
        for value in list(input, "nodes") {
            cluster.set_node(node(value));
        }
        for snapshot in cluster.copies() {
            for one in all(input, "namespaces") {
                snapshot.set_namespace(&one);
            }
            for one in all(input, "podDisruptionBudgets") {
                snapshot.set_budget(&one);
            }
            set_workloads(snapshot, input);
            set_volumes(snapshot, input);
        }
        for value in list(input, "pods") {
            cluster.set_pod(&pod(value));
        }
        cluster
    }

    /// The whole, without and with an index, and all parts.
    fn copies(&mut self) -> impl Iterator<Item = &mut Snapshot> {
        let whole = [&mut self.snapshot, self.engine.cluster()];
        whole.into_iter().chain(&mut self.parts)
    }

    /// The part of a node.
    fn part(&mut self, name: &str) -> &mut Snapshot {
        let sum: usize = name.bytes().map(usize::from).sum();
        &mut self.parts[sum % PARTS]
    }

    pub(crate) fn refresh(&mut self) {
        for (name, image) in self.images.changes() {
            for part in &mut self.parts {
                part.set_cluster_image(&name, image);
            }
        }
        self.snapshot.refresh();
        self.parts.iter_mut().for_each(Snapshot::refresh);
    }

    fn set_node(&mut self, node: Node) {
        let name = node.name().to_owned();
        let old = self.nodes.insert(name.clone(), node.clone());
        self.images.set_node(old.as_ref(), &node);
        self.part(&name).set_node(node.clone());
        self.engine.set_node(node.clone());
        self.snapshot.set_node(node);
    }

    fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.images.remove_node(&node);
        }
        self.part(name).remove_node(name);
        self.engine.remove_node(name);
        self.snapshot.remove_node(name);
    }

    pub(crate) fn set_pod(&mut self, pod: &Pod) {
        self.present.insert(pod.key().to_string(), pod.clone());
        for snapshot in self.copies() {
            snapshot.set_pod(pod.clone());
        }
    }

    pub(crate) fn remove_pod(&mut self, key: &str) {
        self.present.remove(key);
        for snapshot in self.copies() {
            snapshot.remove_pod(&pod_key(key));
        }
    }

    pub(crate) fn clear_nomination(&mut self, key: &str) {
        if let Some(pod) = self.present.remove(key) {
            self.set_pod(&pod.nominated(""));
        }
    }

    /// A change before an attempt.
    pub(crate) fn change(&mut self, change: &Value) {
        if let Some(key) = change["deletePod"].as_str() {
            self.remove_pod(key);
        }
        for kind in ["addNode", "updateNode"] {
            if let Some(value) = change.get(kind) {
                self.set_node(node(value));
            }
        }
        if let Some(name) = change["removeNode"].as_str() {
            let pods = self.present.values().filter(|pod| pod.node_name() == name);
            let keys: Vec<_> = pods.map(|pod| pod.key().to_string()).collect();
            for key in keys {
                self.remove_pod(&key);
            }
            self.remove_node(name);
        }
    }
}

fn pod_key(text: &str) -> PodKey {
    let (namespace, name) = text.split_once('/').unwrap();
    PodKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
