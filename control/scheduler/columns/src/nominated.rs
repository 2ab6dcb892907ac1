//! Pods that are nominated to nodes: for pods of no higher priority, they count there in filters as if they were bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_scheduler_decide::facts::NodeView;
use dormouse_scheduler_decide::{Pod, Snapshot};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Nominated pods, by the slots of their nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nominated {
    by_slot: HashMap<u32, Vec<Arc<Pod>>, FixedState>,
    by_priority: BTreeMap<i32, usize>,
}

impl Nominated {
    /// Reads the pods that are nominated to a node.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, slot: u32, node: Option<NodeView<'_>>) {
        let pods = node.map_or(&[][..], |node| snapshot.nominated(node.name()));
        if pods.is_empty() && self.by_slot.is_empty() {
            return;
        }
        for pod in pods {
            *self.by_priority.entry(pod.priority()).or_default() += 1;
        }
        let before = if pods.is_empty() {
            self.by_slot.remove(&slot)
        } else {
            self.by_slot.insert(slot, pods.to_vec())
        };
        for pod in before.into_iter().flatten() {
            if let Some(len) = self.by_priority.get_mut(&pod.priority()) {
                *len -= 1;
                if *len == 0 {
                    self.by_priority.remove(&pod.priority());
                }
            }
        }
    }

    /// Whether a nominated pod can count for one of this priority.
    pub(crate) fn matter_to(&self, priority: i32) -> bool {
        let last = self.by_priority.last_key_value();
        last.is_some_and(|(highest, _)| *highest >= priority)
    }

    /// The number of nodes that pods are nominated to.
    pub(crate) fn len(&self) -> usize {
        self.by_slot.len()
    }

    /// These nodes.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.by_slot.keys().copied()
    }

    /// The pods that are nominated to a node.
    pub(crate) fn on(&self, slot: u32) -> Option<&[Arc<Pod>]> {
        self.by_slot.get(&slot).map(Vec::as_slice)
    }
}
