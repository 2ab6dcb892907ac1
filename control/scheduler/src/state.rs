//! The scheduler's cache and queue: the pods that count on each node, assumed ones included, and the
//! pods that wait for a node.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use dormouse_cluster::{Change, Key};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Pod;

use crate::nodes::{FitError, NodeIndex, NodeInfo, Nodes};
use crate::request::Request;

/// Time after which an assumed pod that was not seen in the store expires, milliseconds.
pub const ASSUMED_TTL_MS: u64 = 10_000;

/// A pod whose requests count on a node.
#[derive(Debug, Clone)]
struct CachedPod {
    node: NodeIndex,
    request: Request,
    /// When the pod was assumed, milliseconds; `None` once it was seen in the store on this node.
    assumed_ms: Option<u64>,
}

/// The cluster as the scheduler knows it.
#[derive(Debug)]
pub struct State {
    nodes: Nodes,
    pods: HashMap<Key, CachedPod>,
    /// Assumed pods in the order of their expiry.
    assumed: VecDeque<(u64, Key)>,
    /// The active queue: pods in the store without a node.
    active: BTreeMap<Key, Arc<Pod>>,
    /// Pods that fit no node. They return to the active queue when a node changes or a pod is removed.
    unschedulable: BTreeMap<Key, Arc<Pod>>,
    /// Pods whose binding is being written.
    binding: BTreeMap<Key, Arc<Pod>>,
    random: Rng,
}

impl State {
    /// The state of an empty cluster. `seed` determines the choice among nodes with the same score.
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: Nodes::default(),
            pods: HashMap::new(),
            assumed: VecDeque::new(),
            active: BTreeMap::new(),
            unschedulable: BTreeMap::new(),
            binding: BTreeMap::new(),
            random: Rng::with_seed(seed),
        }
    }

    /// Applies a change of the cluster.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::App(..) | Change::Listing | Change::Listed => {}
            Change::Node(key, node) => {
                let index = self.nodes.index(&key.name);
                if self.nodes.update(index, node.as_deref().map(NodeInfo::of)) {
                    self.activate_unschedulable();
                }
            }
            Change::Pod(key, pod) => self.apply_pod(key, pod.as_ref()),
        }
    }

    /// Selects a node for a pod and assumes the pod there. A repeated request for an assumed pod returns
    /// the same node.
    pub fn place(&mut self, now_ms: u64, key: &Key, pod: &Pod) -> Result<String, FitError> {
        self.expire_assumed(now_ms);
        if let Some(cached) = self.pods.get(key) {
            return Ok(self.nodes.name(cached.node).to_owned());
        }
        let request = Request::of(pod);
        let node = self.nodes.place(&request, &mut self.random)?;
        self.nodes.add_pod(node, &request);
        self.pods.insert(
            key.clone(),
            CachedPod {
                node,
                request,
                assumed_ms: Some(now_ms),
            },
        );
        self.assumed.push_back((now_ms, key.clone()));
        Ok(self.nodes.name(node).to_owned())
    }

    /// Selects a node for the next pod of the active queue. If there is a node, the caller must report
    /// the binding to [`State::finish_binding`]; otherwise the pod becomes unschedulable.
    pub fn place_next(&mut self, now_ms: u64) -> Option<(Arc<Pod>, Result<String, FitError>)> {
        let (key, pod) = self.active.pop_first()?;
        let placed = self.place(now_ms, &key, &pod);
        let next = if placed.is_ok() {
            &mut self.binding
        } else {
            &mut self.unschedulable
        };
        next.insert(key, Arc::clone(&pod));
        Some((pod, placed))
    }

    /// Ends the binding of a pod. If it was not written, the assumed pod is forgotten and returns to the
    /// active queue.
    pub fn finish_binding(&mut self, key: &Key, written: bool) {
        let pod = self.binding.remove(key);
        if written {
            return;
        }
        if self
            .pods
            .get(key)
            .is_some_and(|cached| cached.assumed_ms.is_some())
        {
            self.remove_pod(key);
        }
        if let Some(pod) = pod {
            self.active.insert(key.clone(), pod);
        }
    }

    /// Forgets the assumed pods that were not seen in the store within [`ASSUMED_TTL_MS`].
    pub fn expire_assumed(&mut self, now_ms: u64) {
        while let Some((assumed_ms, key)) = self
            .assumed
            .pop_front_if(|(assumed_ms, _)| *assumed_ms + ASSUMED_TTL_MS <= now_ms)
        {
            if self
                .pods
                .get(&key)
                .is_some_and(|cached| cached.assumed_ms == Some(assumed_ms))
            {
                self.remove_pod(&key);
            }
        }
    }

    fn apply_pod(&mut self, key: &Key, pod: Option<&Arc<Pod>>) {
        let Some(pod) = pod.filter(|pod| !is_terminal(pod)) else {
            self.dequeue(key);
            self.remove_pod(key);
            return;
        };
        let Some(node) = node_of(pod) else {
            self.enqueue(key, pod);
            return;
        };
        self.dequeue(key);
        let node = self.nodes.index(node);
        let request = Request::of(pod);
        let same = self
            .pods
            .get(key)
            .is_some_and(|cached| cached.node == node && cached.request == request);
        if !same {
            if let Some(previous) = self.pods.remove(key) {
                self.nodes.remove_pod(previous.node, &previous.request);
            }
            self.nodes.add_pod(node, &request);
        }
        self.pods.insert(
            key.clone(),
            CachedPod {
                node,
                request,
                assumed_ms: None,
            },
        );
    }

    /// Adds a pod without a node to the active queue, or updates the pod whose binding is being written.
    fn enqueue(&mut self, key: &Key, pod: &Arc<Pod>) {
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        if let Some(binding) = self.binding.get_mut(key) {
            *binding = Arc::clone(pod);
            return;
        }
        // A write of its status makes no node fit.
        if let Some(known) = self.unschedulable.get_mut(key)
            && known.metadata.uid == pod.metadata.uid
            && known.spec == pod.spec
        {
            *known = Arc::clone(pod);
            return;
        }
        self.unschedulable.remove(key);
        self.active.insert(key.clone(), Arc::clone(pod));
    }

    /// Removes a pod that needs no node from all queues.
    fn dequeue(&mut self, key: &Key) {
        self.active.remove(key);
        self.unschedulable.remove(key);
        self.binding.remove(key);
    }

    fn remove_pod(&mut self, key: &Key) {
        if let Some(cached) = self.pods.remove(key) {
            self.nodes.remove_pod(cached.node, &cached.request);
            self.activate_unschedulable();
        }
    }

    fn activate_unschedulable(&mut self) {
        self.active.append(&mut self.unschedulable);
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|node| !node.is_empty())
}

/// Whether a pod has terminated; its requests no longer count.
fn is_terminal(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests;
