//! Spread constraints of a pod, for an index that counts.

use super::{Census, NodeView};
use crate::labels::HOSTNAME;
use crate::plugins::pod_topology_spread::constraints;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::spread::{Action, Constraint};

/// A soft spread constraint.
#[derive(Clone, Debug)]
pub struct SpreadTerm {
    constraint: Constraint,
    /// The pods that it counts.
    pub census: Census,
}

impl SpreadTerm {
    /// The key of labels whose values are domains.
    pub fn key(&self) -> &str {
        &self.constraint.topology_key
    }

    /// Whether domains are single nodes.
    pub fn is_by_node(&self) -> bool {
        self.constraint.topology_key == HOSTNAME
    }

    /// The number of pods by which domains may differ.
    pub fn max_skew(&self) -> i64 {
        self.constraint.max_skew
    }

    /// Whether the pods on a node count.
    pub fn includes(&self, pod: &Pod, node: NodeView<'_>) -> bool {
        self.constraint.includes(pod, &node.0.node)
    }
}

impl Profile {
    /// The soft spread constraints of a pod; `None` if it has hard ones, or malformed ones.
    pub fn spread_terms(&self, snapshot: &Snapshot, pod: &Pod) -> Option<Vec<SpreadTerm>> {
        let cycle = self.cycle(snapshot, pod);
        let hard = constraints(cycle, Action::DoNotSchedule).ok()?;
        if !hard.is_empty() {
            return None;
        }
        let soft = constraints(cycle, Action::ScheduleAnyway).ok()?;
        let terms = soft.into_iter().map(|constraint| SpreadTerm {
            census: Census::of_spread(&pod.key.namespace, &constraint.selector),
            constraint: constraint.into_owned(),
        });
        Some(terms.collect())
    }

    /// Whether nodes without one of the keys are left out for a pod with soft constraints.
    pub fn spread_needs_keys(&self, pod: &Pod) -> bool {
        pod.spread.is_some() || !self.spread.is_system
    }
}
