//! What the scheduler knows of the cluster: which pod counts on which node, and which ones are only assumed to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use dormouse_cluster::{Change, Key, View};
use k8s_openapi::api::core::v1::Pod;

use crate::nodes::{Capacity, Nodes, Slot, Unfit};
use crate::random::Random;
use crate::request::Request;

/// How long a placed pod is counted without being seen in the store, milliseconds.
pub const ASSUMED_MS: u64 = 10_000;

/// A pod that counts on a node.
#[derive(Debug, Clone)]
struct Counted {
    slot: Slot,
    request: Request,
    /// Set while the pod has not been seen in the store on this node: when that was assumed, milliseconds.
    assumed_ms: Option<u64>,
}

/// The cluster as far as placing goes.
#[derive(Debug)]
pub struct State {
    nodes: Nodes,
    pods: HashMap<Key, Counted>,
    /// Assumed pods in the order in which they expire.
    assumed: VecDeque<(u64, Key)>,
    /// Pods in the store that want a node.
    wanting: BTreeMap<Key, Arc<Pod>>,
    /// Pods that no node took: they want one again when something changes for the better.
    refused: BTreeMap<Key, Arc<Pod>>,
    /// Pods whose binding is being written.
    binding: BTreeMap<Key, Arc<Pod>>,
    random: Random,
}

impl State {
    /// What a view shows. Equal nodes draw lots by `seed`.
    pub fn new(view: &View, seed: u64) -> Self {
        let mut state = Self {
            nodes: Nodes::default(),
            pods: HashMap::new(),
            assumed: VecDeque::new(),
            wanting: BTreeMap::new(),
            refused: BTreeMap::new(),
            binding: BTreeMap::new(),
            random: Random::new(seed),
        };
        for change in View::default().changes_to(view) {
            state.apply(&change);
        }
        state
    }

    /// Takes a change of the cluster in.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::App(..) => {}
            Change::Node(key, node) => {
                let slot = self.nodes.slot(&key.name);
                if self.nodes.set(slot, node.as_deref().map(Capacity::of)) {
                    self.retry();
                }
            }
            Change::Pod(key, pod) => self.pod(key, pod.as_ref()),
        }
    }

    /// Chooses a node for a pod and counts the pod there. Asked again for a pod that is still assumed, it gives the
    /// same answer.
    pub fn place(&mut self, now_ms: u64, key: &Key, pod: &Pod) -> Result<String, Unfit> {
        self.expire(now_ms);
        if let Some(counted) = self.pods.get(key) {
            return Ok(self.nodes.name(counted.slot).to_owned());
        }
        let request = Request::of(pod);
        let slot = self.nodes.place(&request, &mut self.random)?;
        self.nodes.add(slot, &request);
        self.pods.insert(
            key.clone(),
            Counted {
                slot,
                request,
                assumed_ms: Some(now_ms),
            },
        );
        self.assumed.push_back((now_ms, key.clone()));
        Ok(self.nodes.name(slot).to_owned())
    }

    /// Chooses a node for the next pod of the store that wants one. The answer must be followed by [`State::bound`]
    /// if there is a node; without one the pod is left alone until something changes for the better.
    pub fn place_next(&mut self, now_ms: u64) -> Option<(Arc<Pod>, Result<String, Unfit>)> {
        let (key, pod) = self.wanting.pop_first()?;
        let placed = self.place(now_ms, &key, &pod);
        let next = if placed.is_ok() {
            &mut self.binding
        } else {
            &mut self.refused
        };
        next.insert(key, Arc::clone(&pod));
        Some((pod, placed))
    }

    /// A binding was written, or not: then the pod counts no longer and is tried again.
    pub fn bound(&mut self, key: &Key, written: bool) {
        let pod = self.binding.remove(key);
        if written {
            return;
        }
        if self
            .pods
            .get(key)
            .is_some_and(|counted| counted.assumed_ms.is_some())
        {
            self.uncount(key);
        }
        if let Some(pod) = pod {
            self.wanting.insert(key.clone(), pod);
        }
    }

    /// Counts pods no longer that were assumed and never seen.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some((assumed_ms, key)) = self
            .assumed
            .pop_front_if(|(assumed_ms, _)| *assumed_ms + ASSUMED_MS <= now_ms)
        {
            if self
                .pods
                .get(&key)
                .is_some_and(|counted| counted.assumed_ms == Some(assumed_ms))
            {
                self.uncount(&key);
            }
        }
    }

    fn pod(&mut self, key: &Key, pod: Option<&Arc<Pod>>) {
        let Some(pod) = pod.filter(|pod| !finished(pod)) else {
            self.settled(key);
            self.uncount(key);
            return;
        };
        let Some(node) = node_of(pod) else {
            self.unbound(key, pod);
            return;
        };
        self.settled(key);
        let slot = self.nodes.slot(node);
        let request = Request::of(pod);
        let same = self
            .pods
            .get(key)
            .is_some_and(|counted| counted.slot == slot && counted.request == request);
        if !same {
            if let Some(before) = self.pods.remove(key) {
                self.nodes.subtract(before.slot, &before.request);
            }
            self.nodes.add(slot, &request);
        }
        self.pods.insert(
            key.clone(),
            Counted {
                slot,
                request,
                assumed_ms: None,
            },
        );
    }

    /// A pod wants a node, or still does.
    fn unbound(&mut self, key: &Key, pod: &Arc<Pod>) {
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        if let Some(under_way) = self.binding.get_mut(key) {
            *under_way = Arc::clone(pod);
            return;
        }
        self.refused.remove(key);
        self.wanting.insert(key.clone(), Arc::clone(pod));
    }

    /// A pod wants no node any more.
    fn settled(&mut self, key: &Key) {
        self.wanting.remove(key);
        self.refused.remove(key);
        self.binding.remove(key);
    }

    fn uncount(&mut self, key: &Key) {
        if let Some(counted) = self.pods.remove(key) {
            self.nodes.subtract(counted.slot, &counted.request);
            self.retry();
        }
    }

    fn retry(&mut self) {
        self.wanting.append(&mut self.refused);
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|node| !node.is_empty())
}

/// A pod that ended asks for nothing any more.
fn finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests;
