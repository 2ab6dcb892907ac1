//! The cluster as one scheduling attempt sees it: nodes with their pods, and the objects that plugins look up.

mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::budgets::Budget;
use crate::images::{ImageState, Images};
use crate::node::Node;
use crate::node_state::NodeState;
use crate::node_tree::NodeTree;
use crate::pod::{Pod, PodKey};
use crate::selector::Labels;
use crate::volumes::{ClaimKey, Volumes};
use crate::workloads::Workloads;

/// A cluster. Changes are visible to attempts after [`Snapshot::refresh`].
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    nodes: HashMap<String, NodeState>,
    tree: NodeTree,
    images: Images,
    /// The order of nodes, as of the last refresh at which a node had come or gone.
    order: Vec<String>,
    listed: BTreeSet<String>,
    /// Nodes that changed since the last refresh.
    changed: BTreeSet<String>,
    /// The node of each bound pod.
    bound: HashMap<PodKey, String>,
    /// Bound pods whose node is not known, by its name.
    orphans: HashMap<String, Vec<Arc<Pod>>>,
    /// Pods that are nominated to a node, in the order of their nominations.
    nominated: HashMap<String, Vec<Arc<Pod>>>,
    nominations: HashMap<PodKey, String>,
    /// The number of pods that use a claim.
    claim_users: BTreeMap<ClaimKey, usize>,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) budgets: BTreeMap<(String, String), Budget>,
    pub(crate) workloads: Workloads,
    pub(crate) volumes: Volumes,
}

impl Snapshot {
    /// Adds a node, or replaces it.
    pub fn set_node(&mut self, node: Node) {
        let node = Arc::new(node);
        self.changed.insert(node.name.clone());
        if let Some(state) = self.nodes.get_mut(&node.name) {
            let old = std::mem::replace(&mut state.node, node.clone());
            self.images.remove(&old);
            self.tree.update(&old, &node);
        } else {
            self.tree.add(&node);
            let name = node.name.clone();
            self.nodes.insert(name, NodeState::new(node.clone()));
            for pod in self.orphans.remove(&node.name).into_iter().flatten() {
                self.place(pod);
            }
        }
        self.images.add(&node);
    }

    /// Removes a node. Its pods count no more, until they are removed or the node is back.
    pub fn remove_node(&mut self, name: &str) {
        let Some(state) = self.nodes.remove(name) else {
            return;
        };
        for pod in &state.pods {
            self.release_claims(pod);
        }
        if !state.pods.is_empty() {
            self.orphans.insert(name.to_owned(), state.pods);
        }
        self.tree.remove(&state.node);
        self.images.remove(&state.node);
        self.changed.remove(name);
    }

    /// Adds a pod, or replaces it: on its node if it is bound, else as nominated if it is. Other pods are not kept. A pod
    /// that has ended is for the caller to remove.
    pub fn set_pod(&mut self, pod: Pod) {
        self.remove_pod(&pod.key);
        let pod = Arc::new(pod);
        if pod.node_name.is_empty() {
            self.nominate(&pod);
        } else {
            self.bound.insert(pod.key.clone(), pod.node_name.clone());
            self.place(pod);
        }
    }

    /// Puts a bound pod on its node, if that is known.
    fn place(&mut self, pod: Arc<Pod>) {
        let Some(state) = self.nodes.get_mut(&pod.node_name) else {
            let orphans = self.orphans.entry(pod.node_name.clone());
            orphans.or_default().push(pod);
            return;
        };
        for claim in claims(&pod) {
            *self.claim_users.entry(claim).or_default() += 1;
        }
        self.changed.insert(pod.node_name.clone());
        state.add(pod);
    }

    /// Removes a pod from its node, and its nomination.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.remove_nomination(key);
        let Some(node) = self.bound.remove(key) else {
            return;
        };
        let removed = self
            .nodes
            .get_mut(&node)
            .and_then(|state| state.remove(key));
        if let Some(pod) = removed {
            self.release_claims(&pod);
            self.changed.insert(node);
        } else if let Some(orphans) = self.orphans.get_mut(&node) {
            orphans.retain(|pod| pod.key != *key);
        }
    }

    fn nominate(&mut self, pod: &Arc<Pod>) {
        if !pod.nominated_node.is_empty() {
            let node = pod.nominated_node.clone();
            self.nominations.insert(pod.key.clone(), node.clone());
            self.nominated.entry(node).or_default().push(pod.clone());
        }
    }

    /// Removes a pod's nomination.
    pub fn remove_nomination(&mut self, key: &PodKey) {
        let node = self.nominations.remove(key);
        let pods = node.and_then(|node| self.nominated.get_mut(&node));
        if let Some(pods) = pods {
            pods.retain(|pod| pod.key != *key);
        }
    }

    fn release_claims(&mut self, pod: &Pod) {
        for claim in claims(pod) {
            if let Some(users) = self.claim_users.get_mut(&claim) {
                *users -= 1;
                if *users == 0 {
                    self.claim_users.remove(&claim);
                }
            }
        }
    }

    /// Makes changes visible. What nodes know of images, and their order, changes only here.
    pub fn refresh(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let mut is_new = false;
        for name in changed {
            if let Some(state) = self.nodes.get_mut(&name) {
                state.images = self.images.of(&state.node);
                is_new |= !self.listed.contains(&name);
                self.listed.insert(name);
            }
        }
        if self.listed.len() > self.tree.len() {
            self.listed.retain(|name| self.nodes.contains_key(name));
            is_new = true;
        }
        if is_new {
            let order = self.tree.list().into_iter();
            self.order = order.map(ToOwned::to_owned).collect();
        }
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
    pub fn node_order(&self) -> &[String] {
        &self.order
    }

    /// All nodes, in the order in which attempts look at them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.order.iter().filter_map(|name| self.nodes.get(name))
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// The pods that are nominated to a node.
    pub(crate) fn nominated(&self, node: &str) -> &[Arc<Pod>] {
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a pod on a node uses a claim.
    pub(crate) fn is_claim_used(&self, claim: &ClaimKey) -> bool {
        self.claim_users.contains_key(claim)
    }
}

/// The claims that a pod names.
fn claims(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    use crate::volumes::PodVolume;
    let volumes = pod.volumes.iter();
    volumes.filter_map(|volume| match volume {
        PodVolume::Claim(name) => Some((pod.key.namespace.clone(), name.clone())),
        PodVolume::Ephemeral(_) | PodVolume::Disk(_) | PodVolume::InTree(_) => None,
    })
}

#[cfg(test)]
mod tests;
