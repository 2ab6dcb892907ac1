//! What an index over a snapshot reads of it: amounts of nodes, requests of pods, verdicts that depend on few traits of a
//! node, and which pods are counted. With that it decides as [`crate::Scheduler`] does, without looking at each node.

mod census;
mod class;
mod spread;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

pub use census::Census;
pub use class::{Fixed, Reads, Request, Weights};
pub use spread::SpreadTerm;

use crate::images::ImageState;
use crate::labels::HOSTNAME;
use crate::node_state::NodeState;
use crate::pod::{Pod, PodKey};
use crate::snapshot::{Snapshot, at};
use crate::taints::Taint;

/// The amounts of a node that filters and scores compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Allocatable CPU, thousandths.
    pub cpu: i64,
    /// Allocatable memory, bytes.
    pub memory: i64,
    /// CPU that pods request.
    pub used_cpu: i64,
    /// Memory that pods request.
    pub used_memory: i64,
    /// CPU that pods request in scores that count a minimum for each container.
    pub scored_cpu: i64,
    /// Memory that pods request in such scores.
    pub scored_memory: i64,
    /// Local storage that is not requested, bytes.
    pub free_storage: i64,
    /// The number of pods that there is room for.
    pub free_pods: i64,
}

/// A node of a snapshot, with its pods.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a>(pub(crate) &'a NodeState);

/// What verdicts of a kind depend on: nodes with equal traits have equal verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Traits {
    labels: Vec<Option<String>>,
    has_hostname: bool,
    taints: Vec<Taint>,
    is_unschedulable: bool,
    /// Those that are read.
    images: Vec<(String, ImageState)>,
}

/// A node without its pods, as an example of all nodes with its traits.
#[derive(Clone, Debug)]
pub struct Specimen(NodeState);

impl Specimen {
    /// The node.
    pub fn view(&self) -> NodeView<'_> {
        NodeView(&self.0)
    }
}

impl Snapshot {
    /// A bound of slots.
    pub fn slots_len(&self) -> usize {
        self.nodes.len()
    }

    /// The slots of all nodes, in the order in which attempts look at them.
    pub fn slot_order(&self) -> &[u32] {
        &self.order
    }

    /// The slots of the nodes that report an image.
    pub fn slots_with_image(&self, image: &str) -> Vec<u32> {
        let names = self.images.nodes_of(image);
        names.filter_map(|name| self.slot(name)).collect()
    }

    /// The node of a slot.
    pub fn view(&self, slot: u32) -> Option<NodeView<'_>> {
        self.nodes.get(at(slot))?.as_ref().map(NodeView)
    }

    /// Reads what changes when pods come to these nodes. Each such read waits for memory; all of them together wait once.
    pub fn read_ahead(&self, slots: &[u32]) {
        let nodes = || {
            let all = slots.iter();
            all.filter_map(|slot| self.nodes.get(at(*slot))?.as_ref())
        };
        let sums = nodes().map(NodeState::sum_of_counts);
        black_box(sums.fold(0, u32::wrapping_add));
        let names = nodes().map(|state| Arc::strong_count(&state.name));
        black_box(names.fold(0, usize::wrapping_add));
    }

    /// Grows with each change of an object that is neither a node nor a pod.
    pub fn objects_revision(&self) -> u64 {
        self.objects_revision
    }

    /// Grows with each change of a namespace or a workload, by whose labels and selectors the rules of pods are read.
    pub fn selectors_revision(&self) -> u64 {
        self.selectors_revision
    }

    /// Grows with each change of nominations.
    pub fn nominations_revision(&self) -> u64 {
        self.nominations_revision
    }

    /// The node that a pod is nominated to.
    pub fn nomination(&self, pod: &PodKey) -> Option<&str> {
        self.nominations.get(pod).map(String::as_str)
    }
}

impl<'a> NodeView<'a> {
    /// The name.
    pub fn name(self) -> &'a Arc<str> {
        &self.0.name
    }

    /// The node without its pods, and without other images than these.
    pub fn specimen(self, images: &BTreeSet<String>) -> Specimen {
        let mut state = NodeState::new(self.0.node.clone());
        state.images = self.images(images).collect();
        Specimen(state)
    }

    fn images(self, names: &BTreeSet<String>) -> impl Iterator<Item = (String, ImageState)> {
        let all = self.0.images.iter();
        let read = all.filter(move |(name, _)| names.contains(*name));
        read.map(|(name, image)| (name.clone(), *image))
    }

    /// The pods on it.
    pub fn pods(self) -> &'a [Arc<Pod>] {
        &self.0.pods
    }

    /// The amounts.
    pub fn usage(self) -> Usage {
        let (node, used) = (&self.0.kind.allocatable, &self.0.requested);
        let pods_len = i64::try_from(self.0.pods.len()).unwrap_or(i64::MAX);
        Usage {
            cpu: node.cpu_milli,
            memory: node.memory,
            used_cpu: used.cpu_milli,
            used_memory: used.memory,
            scored_cpu: self.0.non_zero.cpu_milli,
            scored_memory: self.0.non_zero.memory,
            free_storage: node.ephemeral_storage.wrapping_sub(used.ephemeral_storage),
            free_pods: node.pods.saturating_sub(pods_len),
        }
    }

    /// The value of a label.
    pub fn label(self, key: &str) -> Option<&'a str> {
        self.0.node.labels.get(key).map(String::as_str)
    }

    /// Whether it has the label of its host name, and no other node is to be expected with the same value.
    pub fn is_named_as_host(self) -> bool {
        self.label(HOSTNAME) == Some(&**self.name())
    }

    /// The traits that can be read by these keys of labels, and these names of images.
    pub fn traits(self, keys: &BTreeSet<String>, images: &BTreeSet<String>) -> Traits {
        let node = &self.0.node;
        let label = |key: &String| node.labels.get(key).cloned();
        Traits {
            labels: keys.iter().map(label).collect(),
            has_hostname: node.labels.contains_key(HOSTNAME),
            taints: node.taints.clone(),
            is_unschedulable: node.is_unschedulable,
            images: self.images(images).collect(),
        }
    }

    /// Whether it has images, which its traits can depend on after each event.
    pub fn has_images(self) -> bool {
        self.0.can_have_images() && !self.0.images.is_empty()
    }
}
