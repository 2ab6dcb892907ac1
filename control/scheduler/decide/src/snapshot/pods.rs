//! The pods of a cluster: bound ones on their nodes, and nominated ones.

use std::hint::black_box;
use std::sync::Arc;

use super::{NodeEvent, Snapshot, at};
use crate::pod::{Pod, PodKey};
use crate::volumes::{ClaimKey, PodVolume};

impl Snapshot {
    /// Adds a pod, or replaces it: on its node if it is bound, else as nominated if it is. Other pods are not kept. A pod
    /// that has ended is for the caller to remove.
    pub fn set_pod(&mut self, pod: Pod) {
        self.remove_pod(&pod.key);
        if pod.node_name().is_empty() {
            self.nominate(&Arc::new(pod));
        } else {
            let slot = self.slot(pod.node_name());
            self.place(slot, Arc::new(pod));
        }
    }

    /// Adds a pod that is not known to the node of a slot, to which it is bound. There is no event: the caller follows.
    pub fn add_pod(&mut self, slot: u32, pod: Pod) {
        self.add_to_node(slot, Arc::new(pod));
    }

    /// Whether a pod is bound or nominated.
    pub fn has_pod(&self, key: &PodKey) -> bool {
        let is_nominated = !self.nominations.is_empty() && self.nominations.contains_key(key);
        let is_orphan = !self.orphan_nodes.is_empty() && self.orphan_nodes.contains_key(key);
        is_nominated || is_orphan || self.slot_of(key).is_some()
    }

    /// Reads what is read to add these pods. Each such read waits for memory; all of them together wait once.
    pub fn read_ahead_of(&self, pods: &[Pod]) {
        let found = pods
            .iter()
            .filter_map(|pod| self.bound.find(&pod.key, |_| true));
        black_box(found.count());
    }

    /// The slot of the node that has a pod.
    fn slot_of(&self, key: &PodKey) -> Option<u32> {
        let has = |slot: u32| {
            let state = self.nodes[at(slot)].as_ref();
            state.is_some_and(|state| state.position(key).is_some())
        };
        self.bound.find(key, has)
    }

    /// Puts a bound pod on its node, if that is known.
    pub(super) fn place(&mut self, slot: Option<u32>, pod: Arc<Pod>) {
        let Some(slot) = slot else {
            let node = pod.node_name().to_owned();
            self.orphan_nodes.insert(pod.key.clone(), node.clone());
            self.orphans.entry(node).or_default().push(pod);
            return;
        };
        self.events.push(NodeEvent::Added(slot, pod.clone()));
        self.add_to_node(slot, pod);
    }

    fn add_to_node(&mut self, slot: u32, pod: Arc<Pod>) {
        let Some(state) = &mut self.nodes[at(slot)] else {
            return;
        };
        for claim in claims(&pod) {
            *self.claim_users.entry(claim).or_default() += 1;
        }
        self.bound.add(&pod.key, slot);
        state.add(pod);
    }

    /// Removes a pod from its node, and its nomination.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.remove_nomination(key);
        if let Some(slot) = self.slot_of(key) {
            self.bound.remove(key, slot);
            let state = self.nodes[at(slot)].as_mut();
            if let Some(pod) = state.and_then(|state| state.remove(key)) {
                self.release_claims(&pod);
                self.events.push(NodeEvent::Removed(slot, pod));
            }
        } else if let Some(node) = self.orphan_nodes.remove(key)
            && let Some(orphans) = self.orphans.get_mut(&node)
        {
            orphans.retain(|pod| pod.key != *key);
            if orphans.is_empty() {
                self.orphans.remove(&node);
            }
        }
    }

    fn nominate(&mut self, pod: &Arc<Pod>) {
        if !pod.nominated_node.is_empty() {
            let node = pod.nominated_node.to_string();
            self.nominations_revision += 1;
            self.nominations.insert(pod.key.clone(), node.clone());
            self.note_nomination(&node);
            self.nominated.entry(node).or_default().push(pod.clone());
        }
    }

    /// Removes a pod's nomination.
    pub fn remove_nomination(&mut self, key: &PodKey) {
        if self.nominations.is_empty() {
            return;
        }
        let node = self.nominations.remove(key);
        let pods = node.and_then(|node| Some((self.nominated.get_mut(&node)?, node)));
        if let Some((pods, node)) = pods {
            self.nominations_revision += 1;
            pods.retain(|pod| pod.key != *key);
            if pods.is_empty() {
                self.nominated.remove(&node);
            }
            self.note_nomination(&node);
        }
    }

    fn note_nomination(&mut self, node: &str) {
        if let Some(slot) = self.slot(node) {
            self.events.push(NodeEvent::Nominated(slot));
        }
    }

    pub(super) fn release_claims(&mut self, pod: &Pod) {
        for claim in claims(pod) {
            if let Some(users) = self.claim_users.get_mut(&claim) {
                *users -= 1;
                if *users == 0 {
                    self.claim_users.remove(&claim);
                }
            }
        }
    }
}

/// The claims that a pod names.
fn claims(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    let volumes = pod.volumes.iter();
    volumes.filter_map(|volume| match volume {
        PodVolume::Claim(name) => Some((pod.key.namespace.clone(), name.clone())),
        PodVolume::Ephemeral(_) | PodVolume::Disk(_) | PodVolume::InTree(_) => None,
    })
}
