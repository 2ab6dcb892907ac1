//! A node with its pods, and sums over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::images::ImageState;
use crate::node::{Node, NodeKind};
use crate::pod::{Pod, PodKey};
use crate::ports::UsedPorts;
use crate::requests::NonZero;
use crate::resources::Resources;

/// A node with its pods. In the order of fields, what is read or written for each pod comes first, in two cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct NodeState {
    /// That of the node.
    pub(crate) name: Arc<str>,
    /// That of the node.
    pub(crate) kind: Arc<NodeKind>,
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) non_zero: NonZero,
    pub(crate) requested: Resources,
    /// The number of pods with terms of affinity or anti-affinity, and of those with required anti-affinity.
    affine_len: u32,
    required_anti_len: u32,
    pub(crate) node: Arc<Node>,
    pub(crate) ports: UsedPorts,
    pub(crate) images: BTreeMap<String, ImageState>,
}

impl NodeState {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self {
            name: node.name.clone(),
            kind: node.kind.clone(),
            node,
            pods: Vec::new(),
            requested: Resources::default(),
            non_zero: NonZero::default(),
            ports: UsedPorts::default(),
            affine_len: 0,
            required_anti_len: 0,
            images: BTreeMap::new(),
        }
    }

    /// Replaces the node, not its pods; the old one.
    pub(crate) fn replace(&mut self, node: Arc<Node>) -> Arc<Node> {
        self.name = node.name.clone();
        self.kind = node.kind.clone();
        std::mem::replace(&mut self.node, node)
    }

    /// Whether the node reports images.
    pub(crate) fn can_have_images(&self) -> bool {
        !self.kind.images.is_empty()
    }

    /// A number that depends on each cache line that a pod more changes.
    pub(crate) fn sum_of_counts(&self) -> u32 {
        let pods = u32::from(self.pods.capacity() > 0);
        let requested = u32::from(self.requested.cpu_milli > 0);
        pods + requested + self.affine_len
    }

    pub(crate) fn add(&mut self, pod: Arc<Pod>) {
        self.requested.add(&pod.requests.bound);
        let more = pod.requests.bound_non_zero;
        self.non_zero.cpu_milli = self.non_zero.cpu_milli.wrapping_add(more.cpu_milli);
        self.non_zero.memory = self.non_zero.memory.wrapping_add(more.memory);
        self.ports.add(&pod.ports);
        self.affine_len += u32::from(pod.affinity.has_terms());
        self.required_anti_len += u32::from(!pod.affinity.required_anti.is_empty());
        self.pods.push(pod);
    }

    /// The index of a pod.
    pub(crate) fn position(&self, key: &PodKey) -> Option<usize> {
        self.pods.iter().position(|pod| pod.key == *key)
    }

    /// Removes a pod; the last one takes its place in the order.
    pub(crate) fn remove(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let at = self.position(key)?;
        let pod = self.pods.swap_remove(at);
        self.requested.subtract(&pod.requests.bound);
        let less = pod.requests.bound_non_zero;
        self.non_zero.cpu_milli = self.non_zero.cpu_milli.wrapping_sub(less.cpu_milli);
        self.non_zero.memory = self.non_zero.memory.wrapping_sub(less.memory);
        self.ports.remove(&pod.ports);
        self.affine_len -= u32::from(pod.affinity.has_terms());
        self.required_anti_len -= u32::from(!pod.affinity.required_anti.is_empty());
        Some(pod)
    }

    /// The pods with terms of affinity or anti-affinity.
    pub(crate) fn affine(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let some = (self.affine_len > 0).then_some(&self.pods);
        some.into_iter()
            .flatten()
            .filter(|pod| pod.affinity.has_terms())
    }

    /// The pods with required anti-affinity.
    pub(crate) fn with_required_anti(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let some = (self.required_anti_len > 0).then_some(&self.pods);
        let pods = some.into_iter().flatten();
        pods.filter(|pod| !pod.affinity.required_anti.is_empty())
    }
}
