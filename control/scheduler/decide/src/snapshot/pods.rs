//! The pods of a cluster: bound ones on their nodes, and nominated ones.

use std::hint::black_box;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use k8s_openapi::jiff::Timestamp;

use super::{NodeEvent, Snapshot, at, hash};
use crate::pod::{Pod, PodKey};
use crate::volumes::{ClaimKey, PodVolume};

/// A bound pod, with the hash of its key: the table grows without a look at pods.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    hash: u64,
    pod: Arc<Pod>,
}

impl Snapshot {
    /// Adds a pod, or replaces it: on its node if it is bound, else as nominated if it is. Other pods are not kept. A pod
    /// that has ended is for the caller to remove.
    pub fn set_pod(&mut self, pod: Pod) {
        if pod.node_name().is_empty() {
            self.remove_pod(&pod.key);
            self.nominate(&Arc::new(pod));
        } else {
            let slot = self.slot(pod.node_name());
            self.set_bound(pod, slot);
        }
    }

    /// Adds a pod, or replaces it, on the node of a slot; the name of the node.
    pub fn set_pod_on(
        &mut self,
        slot: u32,
        pod: Pod,
        start_time: Option<Timestamp>,
    ) -> Option<Arc<str>> {
        let node = self.nodes.get(at(slot)).and_then(Option::as_ref)?;
        let name = node.name.clone();
        self.set_bound(pod.bound(name.clone(), start_time), Some(slot));
        Some(name)
    }

    /// Reads what is read to add these pods. Each such read waits for memory; all of them together wait once.
    pub fn read_ahead_of(&self, pods: &[Pod]) {
        let hashes = pods.iter().map(|pod| hash(&pod.key));
        let known = hashes.filter(|hash| self.bound.find(*hash, |one| one.hash == *hash).is_some());
        black_box(known.count());
    }

    fn set_bound(&mut self, pod: Pod, slot: Option<u32>) {
        self.remove_nomination(&pod.key);
        let hash = hash(&pod.key);
        let is_it = |one: &Bound| one.hash == hash && one.pod.key == pod.key;
        match self.bound.entry(hash, is_it, |one| one.hash) {
            Entry::Vacant(vacant) => {
                let pod = Arc::new(pod);
                vacant.insert(Bound {
                    hash,
                    pod: pod.clone(),
                });
                self.place(slot, pod);
            }
            Entry::Occupied(_) => {
                self.remove_bound(hash, &pod.key);
                self.set_bound(pod, slot);
            }
        }
    }

    /// Puts a bound pod on its node, if that is known.
    pub(super) fn place(&mut self, slot: Option<u32>, pod: Arc<Pod>) {
        let node = slot.and_then(|slot| self.nodes[at(slot)].as_mut().map(|state| (slot, state)));
        let Some((slot, state)) = node else {
            let orphans = self.orphans.entry(pod.node_name().to_owned());
            orphans.or_default().push(pod);
            return;
        };
        for claim in claims(&pod) {
            *self.claim_users.entry(claim).or_default() += 1;
        }
        self.events.push(NodeEvent::Added(slot, pod.clone()));
        state.add(pod);
    }

    /// Removes a pod from its node, and its nomination.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.remove_nomination(key);
        self.remove_bound(hash(key), key);
    }

    fn remove_bound(&mut self, hash: u64, key: &PodKey) {
        let is_it = |one: &Bound| one.hash == hash && one.pod.key == *key;
        let Ok(entry) = self.bound.find_entry(hash, is_it) else {
            return;
        };
        let (Bound { pod, .. }, _) = entry.remove();
        let slot = self.slot(pod.node_name());
        let node = slot.and_then(|slot| self.nodes[at(slot)].as_mut().map(|state| (slot, state)));
        let removed = node.and_then(|(slot, state)| Some((slot, state.remove(key)?)));
        if let Some((slot, pod)) = removed {
            self.release_claims(&pod);
            self.events.push(NodeEvent::Removed(slot, pod));
        } else if let Some(orphans) = self.orphans.get_mut(pod.node_name()) {
            orphans.retain(|pod| pod.key != *key);
            if orphans.is_empty() {
                self.orphans.remove(pod.node_name());
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
