//! The filter of InterPodAffinity: required terms, of the incoming pod and of those that are there.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{all_select, merged, selects};
use crate::affinity::Term;
use crate::cycle::{self, merge_counts};
use crate::node::Node;
use crate::node_state::NodeState;
use crate::plugins::{Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::selector::Labels;
use crate::status::Status;

/// Matches by topology key and value. Pairs with a count of 0 are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pairs(HashMap<String, HashMap<String, i64>>);

/// What the cycle's pod needs, and what is there.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    required: Vec<Term>,
    required_anti: Vec<Term>,
    namespace_labels: Labels,
    matches: Matches,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Matches {
    /// Pods that all required terms of the incoming pod select.
    affinity: Pairs,
    /// Pods that a required anti-affinity term of the incoming pod selects.
    anti_affinity: Pairs,
    /// Required anti-affinity terms of pods that are there, which select the incoming one.
    existing_anti_affinity: Pairs,
}

impl Pairs {
    fn add(&mut self, node: &Node, key: &str, times: i64) {
        let Some(value) = node.labels.get(key) else {
            return;
        };
        let values = self.0.entry(key.to_owned()).or_default();
        let count = values.entry(value.clone()).or_default();
        *count += times;
        if *count == 0 {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn merge(&mut self, more: Self) {
        for (key, values) in more.0 {
            merge_counts(self.0.entry(key).or_default(), values);
        }
    }

    fn has(&self, key: &str, value: &str) -> bool {
        let count = self.0.get(key).and_then(|values| values.get(value));
        count.is_some_and(|count| *count > 0)
    }
}

impl Matches {
    pub(crate) fn merge(&mut self, more: Self) {
        self.affinity.merge(more.affinity);
        self.anti_affinity.merge(more.anti_affinity);
        self.existing_anti_affinity
            .merge(more.existing_anti_affinity);
    }
}

/// Counts the matches of all terms.
pub(crate) fn pre_filter(
    cycle: Cycle<'_>,
    state: &mut CycleState,
    all: &mut cycle::Counts,
) -> Result<PreFilter, Status> {
    let affinity = &cycle.pod.affinity;
    if let Some(error) = &affinity.error {
        return Err(Status::unresolvable(format!("parsing pod: {error}")));
    }
    let namespace = cycle.snapshot.namespaces.get(&cycle.pod.key.namespace);
    let merge = |terms: &[Term]| terms.iter().map(|term| merged(cycle, term)).collect();
    let mut counts = Counts {
        required: merge(&affinity.required),
        required_anti: merge(&affinity.required_anti),
        namespace_labels: namespace.cloned().unwrap_or_default(),
        ..Counts::default()
    };
    let has_terms = counts.has_terms();
    for node in cycle.snapshot.nodes() {
        for existing in node.with_required_anti() {
            counts.count_existing(cycle.pod, existing, &node.node, 1);
        }
        for existing in node.pods.iter().filter(|_| has_terms) {
            counts.count_incoming(existing, &node.node, 1);
        }
    }
    all.affinity = std::mem::take(&mut counts.matches);
    state.affinity = counts;
    Ok(PreFilter::Done)
}

impl Counts {
    fn has_terms(&self) -> bool {
        !self.required.is_empty() || !self.required_anti.is_empty()
    }

    /// Takes the matches on all nodes; idle for a pod that has no terms and matches none.
    pub(crate) fn is_idle(&mut self, all: &cycle::Counts) -> bool {
        self.matches = all.affinity.clone();
        !self.has_terms() && self.matches.existing_anti_affinity.is_empty()
    }

    fn count_existing(&mut self, pod: &Pod, existing: &Pod, node: &Node, times: i64) {
        for term in &existing.affinity.required_anti {
            if term.matches(&pod.key.namespace, &pod.labels, &self.namespace_labels) {
                let pairs = &mut self.matches.existing_anti_affinity;
                pairs.add(node, &term.topology_key, times);
            }
        }
    }

    fn count_incoming(&mut self, existing: &Pod, node: &Node, times: i64) {
        if all_select(self.required.iter(), existing) {
            for term in &self.required {
                self.matches.affinity.add(node, &term.topology_key, times);
            }
        }
        for term in self
            .required_anti
            .iter()
            .filter(|term| selects(term, existing))
        {
            let pairs = &mut self.matches.anti_affinity;
            pairs.add(node, &term.topology_key, times);
        }
    }

    /// Adds pods like `other` on `node`, or takes them away.
    pub(crate) fn count(&mut self, pod: &Pod, other: &Pod, node: &Node, times: i64) {
        self.count_existing(pod, other, node, times);
        self.count_incoming(other, node, times);
    }

    fn satisfies_affinity(&self, pod: &Pod, labels: &Labels) -> bool {
        let mut all_present = true;
        for term in &self.required {
            let Some(value) = labels.get(&term.topology_key) else {
                return false;
            };
            all_present &= self.matches.affinity.has(&term.topology_key, value);
        }
        // The first pod of a group may go anywhere, if it is of the group itself.
        all_present || self.matches.affinity.is_empty() && all_select(self.required.iter(), pod)
    }

    fn satisfies_anti_affinity(&self, labels: &Labels) -> bool {
        let mut terms = self.required_anti.iter();
        !terms.any(|term| {
            let value = labels.get(&term.topology_key);
            value.is_some_and(|value| self.matches.anti_affinity.has(&term.topology_key, value))
        })
    }

    fn satisfies_existing(&self, labels: &Labels) -> bool {
        let pairs = &self.matches.existing_anti_affinity;
        let mut keys = pairs.0.keys();
        !keys.any(|key| {
            let value = labels.get(key);
            value.is_some_and(|value| pairs.has(key, value))
        })
    }
}

/// Rejects nodes that a required term excludes.
pub(crate) fn filter(pod: &Pod, state: &CycleState, node: &NodeState) -> Result<(), Status> {
    let (counts, labels) = (&state.affinity, &node.node.labels);
    if !counts.satisfies_affinity(pod, labels) {
        let reason = "node(s) didn't match pod affinity rules";
        return Err(Status::unresolvable(reason));
    }
    if !counts.satisfies_anti_affinity(labels) {
        let reason = "node(s) didn't match pod anti-affinity rules";
        return Err(Status::unschedulable(reason));
    }
    if !counts.satisfies_existing(labels) {
        let reason = "node(s) didn't satisfy existing pods anti-affinity rules";
        return Err(Status::unschedulable(reason));
    }
    Ok(())
}
