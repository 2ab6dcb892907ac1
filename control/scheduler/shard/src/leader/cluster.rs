//! The cluster, as the API has it and as decisions change it.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{ImageCensus, ImageState, Malformed, Node, Pod, PodKey, Snapshot};
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};

use crate::change::{Change, Kind, Thing};
use crate::object::Object;

/// Nodes, the pods that are bound or nominated to them, and all else that plugins look up.
#[derive(Default)]
pub(super) struct Cluster {
    nodes: BTreeMap<String, Object<ApiNode>>,
    pods: BTreeMap<PodKey, (String, Object<ApiPod>)>,
    /// The pods of each node, also of one that is not known.
    of_node: BTreeMap<String, BTreeSet<PodKey>>,
    things: BTreeMap<(Kind, String, String), Thing>,
    images: ImageCensus,
}

impl Cluster {
    pub(super) fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// The names of all nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// The name of the node, and whether it is new; `None` if nothing has changed.
    pub(super) fn set_node(
        &mut self,
        node: Object<ApiNode>,
    ) -> Result<Option<(String, bool)>, Malformed> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if self.nodes.get(name) == Some(&node) {
            return Ok(None);
        }
        let parsed = Node::parse(&node)?;
        let name = parsed.name().to_string();
        let old = self.nodes.insert(name.clone(), node);
        let is_new = old.is_none();
        let old = old.and_then(|old| Node::parse(&old).ok());
        self.images.set_node(old.as_ref(), &parsed);
        Ok(Some((name, is_new)))
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        let old = self.nodes.remove(name);
        if let Some(old) = old.and_then(|old| Node::parse(&old).ok()) {
            self.images.remove_node(&old);
        }
    }

    /// Puts a pod on a node; it must be on none.
    pub(super) fn place(&mut self, key: PodKey, node: &str, pod: Object<ApiPod>) {
        let of_node = self.of_node.entry(node.to_owned()).or_default();
        of_node.insert(key.clone());
        self.pods.insert(key, (node.to_owned(), pod));
    }

    /// Takes a pod from its node, which is returned.
    pub(super) fn displace(&mut self, key: &PodKey) -> Option<String> {
        let (node, _) = self.pods.remove(key)?;
        if let Some(of_node) = self.of_node.get_mut(&node) {
            of_node.remove(key);
        }
        Some(node)
    }

    pub(super) fn pod(&self, key: &PodKey) -> Option<&(String, Object<ApiPod>)> {
        self.pods.get(key)
    }

    /// The pods that are bound or nominated to a node.
    pub(super) fn keys_of(&self, node: &str) -> Vec<PodKey> {
        let keys = self.of_node.get(node).into_iter().flatten();
        keys.cloned().collect()
    }

    pub(super) fn pods_of(&self, node: &str) -> Vec<Object<ApiPod>> {
        let keys = self.of_node.get(node).into_iter().flatten();
        let pods = keys.filter_map(|key| self.pods.get(key));
        pods.map(|(_, pod)| pod.clone()).collect()
    }

    /// The pods with a lower priority that are nominated to a node.
    pub(super) fn nominated_below(&self, node: &str, priority: i32) -> Vec<PodKey> {
        let pods = self.pods_of(node);
        let parsed = pods.iter().filter_map(|pod| Pod::parse(pod).ok());
        let below = parsed.filter(|pod| pod.node_name().is_empty() && pod.priority() < priority);
        below.map(|pod| pod.key().clone()).collect()
    }

    pub(super) fn set_thing(&mut self, thing: Thing) -> Result<(), Malformed> {
        thing.set(&mut Snapshot::default())?;
        self.things.insert(thing.key(), thing);
        Ok(())
    }

    pub(super) fn remove_thing(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.things.remove(&key);
    }

    /// The images that may have changed since the last call.
    pub(super) fn image_changes(&mut self) -> Vec<(String, Option<ImageState>)> {
        self.images.changes()
    }

    /// The changes that give a shard a node with its pods.
    pub(super) fn with_pods(&self, node: &str) -> Vec<Change> {
        let object = self.nodes.get(node).into_iter();
        let object = object.map(|object| Change::Node(object.clone()));
        let pods = self.pods_of(node).into_iter();
        object.chain(pods.map(Change::Pod)).collect()
    }

    /// The changes that take it away.
    pub(super) fn without_pods(&self, node: &str) -> Vec<Change> {
        let pods = self.keys_of(node).into_iter().map(Change::PodGone);
        pods.chain([Change::NodeGone(node.to_owned())]).collect()
    }

    /// The changes that give a new shard what all have.
    pub(super) fn common(&self) -> Vec<Change> {
        let things = self.things.values();
        let things = things.map(|thing| Change::Thing(thing.clone()));
        let images = self.images.all();
        let images = images.map(|(name, image)| Change::Image(name.to_owned(), Some(image)));
        [Change::Reset]
            .into_iter()
            .chain(things)
            .chain(images)
            .collect()
    }
}
