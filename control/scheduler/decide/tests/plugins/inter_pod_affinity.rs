//! InterPodAffinity: near the pods of a term, or far from them, by a label of the nodes.
//!
//! Sources: "Assigning Pods to Nodes: Inter-pod affinity and anti-affinity"; the API reference of PodAffinityTerm and of
//! InterPodAffinityArgs (kubernetes.io).

mod input;
mod term;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cluster::{Cluster, incoming, labels};
use crate::reference::{Column, Reference, check};
use input::clusters;
pub(crate) use input::pod;
use term::{Strength, Term};

/// A key and a value of a node's label.
type Domain = (String, String);

#[derive(Clone, Debug)]
pub(crate) struct InterPodAffinity {
    /// The weight of a required affinity of a pod that is there.
    hard_weight: i64,
    /// Preferences of pods that are there count only for a pod that has some.
    ignores_existing: bool,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        Self {
            hard_weight: 1,
            ignores_existing: false,
        }
    }
}

impl Reference for InterPodAffinity {
    fn plugin(&self) -> Plugin {
        Plugin::InterPodAffinity
    }

    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        if !is_near(cluster, pod, node) {
            Some(Code::UnschedulableAndUnresolvable)
        } else if is_too_near(cluster, pod, node) || is_unwanted(cluster, pod, node) {
            Some(Code::Unschedulable)
        } else {
            None
        }
    }

    fn score(&self, cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let weights = self.weights(cluster, pod);
        if weights.is_empty() {
            return None;
        }
        let raw = |node: &&Node| {
            let domains = labels(node).into_iter();
            domains.filter_map(|domain| weights.get(&domain)).sum()
        };
        Some(normalised(feasible.iter().map(raw).collect()))
    }
}

impl InterPodAffinity {
    /// The sum of the weights of each domain.
    fn weights(&self, cluster: &Cluster, pod: &Pod) -> BTreeMap<Domain, i64> {
        let mut weights = BTreeMap::new();
        let own = [
            Term::near(pod, Strength::Preferred),
            Term::far(pod, Strength::Preferred),
        ]
        .concat();
        if self.ignores_existing && own.is_empty() {
            return weights;
        }
        for (other, node) in placed(cluster) {
            let own = own.iter().filter(|term| term.matches(cluster, other));
            let mut theirs = Term::near(other, Strength::Preferred);
            theirs.extend(Term::far(other, Strength::Preferred));
            if self.hard_weight > 0 {
                let required = Term::near(other, Strength::Required).into_iter();
                theirs.extend(required.map(|term| term.weighing(self.hard_weight)));
            }
            let theirs = theirs
                .iter()
                .filter(|term| term.matches_incoming(cluster, pod));
            for term in own.chain(theirs) {
                if let Some(value) = labels(node).remove(&term.key) {
                    *weights.entry((term.key.clone(), value)).or_default() += term.weight;
                }
            }
        }
        weights
    }
}

/// All pods with their nodes.
fn placed(cluster: &Cluster) -> impl Iterator<Item = (&Pod, &Node)> {
    let nodes = cluster.nodes.iter();
    nodes.flat_map(|node| cluster.pods_on(node).map(move |pod| (pod, node)))
}

/// The domains of a key with a pod that is selected.
fn domains(cluster: &Cluster, key: &str, selects: impl Fn(&Pod) -> bool) -> BTreeSet<String> {
    let selected = placed(cluster).filter(|(pod, _)| selects(pod));
    selected
        .filter_map(|(_, node)| labels(node).remove(key))
        .collect()
}

/// In the domain of each key is a pod that all of the pod's required terms match. The first pod of a group needs none: no pod
/// that they match is in any domain, and they match the pod itself.
fn is_near(cluster: &Cluster, pod: &Pod, node: &Node) -> bool {
    let terms = Term::near(pod, Strength::Required);
    let all_match = |other: &Pod| terms.iter().all(|term| term.matches(cluster, other));
    let by_term: Vec<_> = terms
        .iter()
        .map(|term| domains(cluster, &term.key, all_match))
        .collect();
    let values: Option<Vec<_>> = terms
        .iter()
        .map(|term| labels(node).remove(&term.key))
        .collect();
    let Some(values) = values else {
        return false;
    };
    let is_first = by_term.iter().all(BTreeSet::is_empty) && all_match(pod);
    is_first
        || values
            .iter()
            .zip(&by_term)
            .all(|(value, domains)| domains.contains(value))
}

/// In the domain of a key is a pod that the pod's required anti-affinity matches.
fn is_too_near(cluster: &Cluster, pod: &Pod, node: &Node) -> bool {
    Term::far(pod, Strength::Required).iter().any(|term| {
        let domains = domains(cluster, &term.key, |other| term.matches(cluster, other));
        labels(node)
            .get(&term.key)
            .is_some_and(|value| domains.contains(value))
    })
}

/// In the node's domain is a pod whose required anti-affinity matches the pod.
fn is_unwanted(cluster: &Cluster, pod: &Pod, node: &Node) -> bool {
    placed(cluster).any(|(other, place)| {
        Term::far(other, Strength::Required).iter().any(|term| {
            let value = labels(place).remove(&term.key);
            value.is_some()
                && value == labels(node).remove(&term.key)
                && term.matches_incoming(cluster, pod)
        })
    })
}

/// From 0 for the least to 100 for the most; all 0 if all have the same.
fn normalised(raw: Vec<i64>) -> Column {
    let min = raw.iter().copied().min().unwrap_or(0);
    let range = raw.iter().copied().max().unwrap_or(0) - min;
    let share = |one: &i64| {
        if range == 0 {
            0
        } else {
            percent(one - min, range)
        }
    };
    Column {
        normalised: raw.iter().map(share).collect(),
        raw,
    }
}

/// The quotient is of float64, and so is the product, which is truncated.
#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "from 0 to 100, truncated"
)]
fn percent(part: i64, whole: i64) -> i64 {
    (100.0 * (part as f64 / whole as f64)) as i64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn affinity_between_pods_is_as_documented(
        hard_weight in prop_oneof![Just(1), 0..=100_i64],
        ignores_existing in any::<bool>(),
        cluster in clusters(),
        pod in incoming(pod()),
    ) {
        let args = json!({"hardPodAffinityWeight": hard_weight, "ignorePreferredTermsOfExistingPods": ignores_existing});
        check(&InterPodAffinity { hard_weight, ignores_existing }, &args, &cluster, &pod)?;
        check(&InterPodAffinity::default(), &Value::Null, &cluster, &pod)?;
    }
}
