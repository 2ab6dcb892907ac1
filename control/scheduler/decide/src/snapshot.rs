//! The cluster as one scheduling attempt sees it: nodes with their pods, and the objects that plugins look up.

mod bound;
mod objects;
mod pods;

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::budgets::Budget;
use crate::images::{ImageState, Images};
use crate::node::{Node, NodeInterners};
use crate::node_state::NodeState;
use crate::node_tree::NodeTree;
use crate::pod::{Pod, PodKey};
use crate::selector::Labels;
use crate::volumes::{ClaimKey, Volumes};
use crate::workloads::Workloads;
use bound::BoundPods;

/// A cluster. Changes are visible to attempts after [`Snapshot::refresh`].
///
/// A node has a slot, an index that it keeps until it is removed; later another one may get it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) nodes: Vec<Option<NodeState>>,
    free_slots: Vec<u32>,
    slots: HashTable<u32>,
    interners: NodeInterners,
    tree: NodeTree,
    pub(crate) images: Images,
    /// The order of nodes, as of the last refresh at which a node had come or gone.
    pub(crate) order: Vec<u32>,
    is_order_old: bool,
    /// What happened to nodes since the last refresh.
    events: Vec<NodeEvent>,
    /// Grows with each change of an object that is neither a node nor a pod.
    pub(crate) objects_revision: u64,
    /// Grows with each change of a namespace or a workload.
    pub(crate) selectors_revision: u64,
    /// Grows with each change of nominations.
    pub(crate) nominations_revision: u64,
    /// All pods on nodes.
    bound: BoundPods,
    /// Bound pods whose node is not known, by its name; and that name, by the pod.
    orphans: HashMap<String, Vec<Arc<Pod>>>,
    orphan_nodes: HashMap<PodKey, String>,
    /// Pods that are nominated to a node, in the order of their nominations.
    nominated: HashMap<String, Vec<Arc<Pod>>>,
    pub(crate) nominations: HashMap<PodKey, String>,
    /// The number of pods that use a claim.
    claim_users: BTreeMap<ClaimKey, usize>,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) budgets: BTreeMap<(String, String), Budget>,
    pub(crate) workloads: Workloads,
    pub(crate) volumes: Volumes,
}

fn hash<T: std::hash::Hash + ?Sized>(value: &T) -> u64 {
    FixedState::default().hash_one(value)
}

/// The index of a slot.
pub(crate) fn at(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// What happened to a node, with the pod of type `P`.
#[derive(Clone, Debug)]
pub enum NodeEvent<P = Arc<Pod>> {
    /// It came, changed or went.
    Node(u32),
    /// It has a pod more.
    Added(u32, P),
    /// It has a pod less.
    Removed(u32, P),
    /// Pods are nominated to it, or are no more. What it knows of images does not change by that.
    Nominated(u32),
}

impl<P> NodeEvent<P> {
    /// The slot of the node.
    pub fn slot(&self) -> u32 {
        match self {
            Self::Node(slot)
            | Self::Added(slot, _)
            | Self::Removed(slot, _)
            | Self::Nominated(slot) => *slot,
        }
    }
}

impl Snapshot {
    /// Adds a node, or replaces it.
    pub fn set_node(&mut self, mut node: Node) {
        node.intern(&mut self.interners);
        let node = Arc::new(node);
        match self.slot(&node.name) {
            Some(slot) => self.replace_node(slot, &node),
            None => self.add_node(&node),
        }
        self.images.add(&node);
    }

    fn replace_node(&mut self, slot: u32, node: &Arc<Node>) {
        if let Some(state) = &mut self.nodes[at(slot)] {
            let old = state.replace(node.clone());
            self.images.remove(&old);
            self.tree.update(&old, node, slot);
            self.events.push(NodeEvent::Node(slot));
        }
    }

    fn add_node(&mut self, node: &Arc<Node>) {
        let state = Some(NodeState::new(node.clone()));
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.nodes[at(slot)] = state;
            slot
        } else {
            self.nodes.push(state);
            u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
        };
        let nodes = &self.nodes;
        let of = |slot: &u32| nodes[at(*slot)].as_ref().map_or(0, |one| hash(&*one.name));
        self.slots.insert_unique(hash(&*node.name), slot, of);
        self.tree.add(node, slot);
        self.events.push(NodeEvent::Node(slot));
        self.is_order_old = true;
        for pod in self.orphans.remove(&*node.name).into_iter().flatten() {
            self.orphan_nodes.remove(&pod.key);
            self.place(Some(slot), pod);
        }
    }

    /// Removes a node. Its pods count no more, until they are removed or the node is back.
    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.slot(name) else {
            return;
        };
        let nodes = &self.nodes;
        let is_it = |other: &u32| *other == slot && nodes[at(slot)].is_some();
        if let Ok(entry) = self.slots.find_entry(hash(name), is_it) {
            entry.remove();
        }
        let Some(state) = self.nodes[at(slot)].take() else {
            return;
        };
        self.tree.remove(&state.node, slot);
        self.images.remove(&state.node);
        for pod in state.pods {
            self.bound.remove(&pod.key, slot);
            self.release_claims(&pod);
            self.events.push(NodeEvent::Removed(slot, pod.clone()));
            self.place(None, pod);
        }
        self.free_slots.push(slot);
        self.events.push(NodeEvent::Node(slot));
        self.is_order_old = true;
    }

    /// Makes changes visible. What nodes know of images, and their order, changes only here.
    pub fn refresh(&mut self) {
        self.refresh_into(&mut Vec::new());
    }

    /// The same; what happened to nodes since the last refresh is added to `events`. Returns whether the order is new.
    pub fn refresh_into(&mut self, events: &mut Vec<NodeEvent>) -> bool {
        for event in &self.events {
            let is_node = matches!(event, NodeEvent::Node(_));
            if !matches!(event, NodeEvent::Nominated(_))
                && let Some(state) = &mut self.nodes[at(event.slot())]
                && (is_node || state.can_have_images())
            {
                state.images = self.images.of(&state.node);
            }
        }
        events.append(&mut self.events);
        let is_order_new = std::mem::take(&mut self.is_order_old);
        if is_order_new {
            self.order = self.tree.list();
        }
        is_order_new
    }

    /// Sets an image of the whole cluster, of which this is a part; `None` if no node has it. Images that the part's own nodes
    /// report are not counted from then on.
    pub fn set_cluster_image(&mut self, name: &str, image: Option<ImageState>) {
        self.images.set_cluster(name, image);
    }

    /// The number of nodes.
    pub fn nodes_len(&self) -> usize {
        self.order.len()
    }

    /// The names of all nodes, in the order in which attempts look at them.
    pub fn node_order(&self) -> Vec<&str> {
        self.nodes().map(|node| &*node.name).collect()
    }

    /// All nodes, in the order in which attempts look at them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        let slots = self.order.iter();
        slots.filter_map(|slot| self.nodes[at(*slot)].as_ref())
    }

    /// The slot of a node.
    pub fn slot(&self, name: &str) -> Option<u32> {
        let is_it = |slot: &u32| {
            let state = self.nodes[at(*slot)].as_ref();
            state.is_some_and(|state| &*state.name == name)
        };
        self.slots.find(hash(name), is_it).copied()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes[at(self.slot(name)?)].as_ref()
    }

    /// The pods that are nominated to a node.
    pub fn nominated(&self, node: &str) -> &[Arc<Pod>] {
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a pod on a node uses a claim.
    pub(crate) fn is_claim_used(&self, claim: &ClaimKey) -> bool {
        self.claim_users.contains_key(claim)
    }
}

#[cfg(test)]
mod tests;
