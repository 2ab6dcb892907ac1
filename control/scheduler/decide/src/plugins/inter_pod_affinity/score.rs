//! The score of InterPodAffinity: preferred terms, of the incoming pod and of those that are there.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{merged, selects};
use crate::affinity::{Term, WeightedTerm};
use crate::cycle::merge_counts;
use crate::node::Node;
use crate::node_state::NodeState;
use crate::plugins::normalize::{SCORE_MAX, truncated};
use crate::plugins::{Cycle, Scorer};
use crate::pod::Pod;
use crate::selector::Labels;

/// The sums of weights by topology key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Weights(HashMap<String, HashMap<String, i64>>);

/// What the incoming pod brings.
struct Incoming<'a> {
    pod: &'a Pod,
    namespace_labels: Labels,
    preferred: Vec<WeightedTerm>,
    preferred_anti: Vec<WeightedTerm>,
    /// The weight of required affinity terms of pods that are there.
    hard_weight: i64,
}

/// Sums up the weights of matching terms.
pub(crate) fn survey(cycle: Cycle<'_>) -> Result<Weights, String> {
    let args = &cycle.profile.affinity;
    let affinity = &cycle.pod.affinity;
    if args.ignores_existing_preferences && !affinity.has_preferences() {
        return Ok(Weights::default());
    }
    if let Some(error) = &affinity.error {
        return Err(format!("failed to parse pod: {error}"));
    }
    let merge = |terms: &[WeightedTerm]| {
        let merge = |one: &WeightedTerm| WeightedTerm {
            weight: one.weight,
            term: merged(cycle, &one.term),
        };
        terms.iter().map(merge).collect()
    };
    let namespace = cycle.snapshot.namespaces.get(&cycle.pod.key.namespace);
    let incoming = Incoming {
        pod: cycle.pod,
        namespace_labels: namespace.cloned().unwrap_or_default(),
        preferred: merge(&affinity.preferred),
        preferred_anti: merge(&affinity.preferred_anti),
        hard_weight: args.hard_weight,
    };
    let mut weights = Weights::default();
    for node in cycle.snapshot.nodes() {
        if affinity.has_preferences() {
            for existing in &node.pods {
                weights.count(&incoming, existing, &node.node);
            }
        } else {
            for existing in node.affine() {
                weights.count(&incoming, existing, &node.node);
            }
        }
    }
    Ok(weights)
}

impl Weights {
    /// Adds those of other nodes.
    pub(crate) fn merge(&mut self, more: Self) {
        for (key, values) in more.0 {
            merge_counts(self.0.entry(key).or_default(), values);
        }
    }

    /// Skips pods for which no term matches.
    pub(crate) fn scorer<'a>(&'a self) -> Option<Box<dyn Scorer + 'a>> {
        (!self.0.is_empty()).then(|| Box::new(self) as Box<dyn Scorer>)
    }

    fn count(&mut self, incoming: &Incoming<'_>, existing: &Pod, node: &Node) {
        for (terms, sign) in [(&incoming.preferred, 1), (&incoming.preferred_anti, -1)] {
            for one in terms.iter().filter(|one| selects(&one.term, existing)) {
                self.add(node, &one.term, sign * one.weight);
            }
        }
        let is_selected = |term: &Term| {
            let pod = incoming.pod;
            term.matches(&pod.key.namespace, &pod.labels, &incoming.namespace_labels)
        };
        let theirs = &existing.affinity;
        if incoming.hard_weight > 0 {
            for term in theirs.required.iter().filter(|term| is_selected(term)) {
                self.add(node, term, incoming.hard_weight);
            }
        }
        for (terms, sign) in [(&theirs.preferred, 1), (&theirs.preferred_anti, -1)] {
            for one in terms.iter().filter(|one| is_selected(&one.term)) {
                self.add(node, &one.term, sign * one.weight);
            }
        }
    }

    fn add(&mut self, node: &Node, term: &Term, weight: i64) {
        if let Some(value) = node.labels.get(&term.topology_key) {
            let values = self.0.entry(term.topology_key.clone()).or_default();
            *values.entry(value.clone()).or_default() += weight;
        }
    }
}

impl Scorer for &Weights {
    fn score(&self, node: &NodeState) -> i64 {
        let weight = |(key, values): (&String, &HashMap<String, i64>)| {
            let value = node.node.labels.get(key)?;
            values.get(value).copied()
        };
        self.0.iter().filter_map(weight).sum()
    }
}

/// A score in the range from 0 to 100. Equal scores become 0.
pub(crate) fn normalized(score: i64, (least, largest): (i64, i64)) -> i64 {
    let range = largest - least;
    if range == 0 {
        return 0;
    }
    let share = (score - least) as f64 / range as f64;
    truncated(SCORE_MAX as f64 * share)
}
