//! PodTopologySpread: the pods of a selector are spread over the domains of a label of the nodes.
//!
//! Sources: "Pod Topology Spread Constraints"; the API reference of TopologySpreadConstraint and of PodTopologySpreadArgs
//! (kubernetes.io).

mod constraint;
mod input;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_scheduler_decide::{Code, Plugin};
use k8s_openapi::api::core::v1::{Node, Pod, TopologySpreadConstraint};
use proptest::prelude::*;
use serde_json::Value;

use crate::cluster::{Cluster, incoming, labels};
use crate::reference::{Column, Reference, SCORE_MAX, check};
use constraint::Constraint;
pub(crate) use input::{constrained_pod, node};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// With the constraints of pods that have none; without a list, Kubernetes' own.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodTopologySpread {
    defaults: Option<Vec<TopologySpreadConstraint>>,
}

impl Reference for PodTopologySpread {
    fn plugin(&self) -> Plugin {
        Plugin::PodTopologySpread
    }

    /// The first constraint that a node does not meet decides.
    fn filter(&self, cluster: &Cluster, pod: &Pod, node: &Node) -> Option<Code> {
        let hard = self.constraints(cluster, pod, "DoNotSchedule");
        hard.iter().find_map(|constraint| {
            let Some(value) = labels(node).remove(&constraint.key) else {
                return Some(Code::UnschedulableAndUnresolvable);
            };
            let domains = domains(constraint, &hard, cluster, pod);
            let min = domains
                .values()
                .copied()
                .min()
                .filter(|_| domains.len() >= constraint.domains_min);
            let own = i64::from(constraint.selects(pod));
            let skew = domains.get(&value).unwrap_or(&0) + own - min.unwrap_or(0);
            (skew > constraint.max_skew).then_some(Code::Unschedulable)
        })
    }

    fn score(&self, cluster: &Cluster, pod: &Pod, feasible: &[&Node]) -> Option<Column> {
        let soft = self.constraints(cluster, pod, "ScheduleAnyway");
        if soft.is_empty() {
            return None;
        }
        // With Kubernetes' own constraints a node may lack a key.
        let needs_keys = self.defaults.is_some() || has_own(pod);
        let counts = |node: &Node| !needs_keys || has_keys(&soft, node);
        let scored: Vec<&Node> = feasible
            .iter()
            .copied()
            .filter(|node| counts(node))
            .collect();
        let raw = |node: &&Node| {
            counts(node).then(|| raw_score(&soft, &scored, cluster, pod, node, needs_keys))
        };
        Some(normalised(&feasible.iter().map(raw).collect::<Vec<_>>()))
    }
}

impl PodTopologySpread {
    /// The pod's own constraints of a kind, or the default ones if its workloads select it.
    fn constraints(&self, cluster: &Cluster, pod: &Pod, action: &str) -> Vec<Constraint> {
        let all = if has_own(pod) {
            Constraint::own(pod)
        } else {
            Constraint::defaults(self.defaults.as_deref(), cluster, pod)
        };
        all.into_iter().filter(|one| one.action == action).collect()
    }
}

fn has_own(pod: &Pod) -> bool {
    !Constraint::own(pod).is_empty()
}

fn has_keys(constraints: &[Constraint], node: &Node) -> bool {
    let labels = labels(node);
    constraints.iter().all(|one| labels.contains_key(&one.key))
}

/// The pods that a hard constraint counts in each domain. A node without all keys is in no domain.
fn domains(
    constraint: &Constraint,
    hard: &[Constraint],
    cluster: &Cluster,
    pod: &Pod,
) -> BTreeMap<String, i64> {
    let mut domains = BTreeMap::new();
    for node in &cluster.nodes {
        if has_keys(hard, node) && constraint.includes(pod, node) {
            let value = labels(node).remove(&constraint.key).unwrap();
            *domains.entry(value).or_default() += constraint.count(cluster, pod, node);
        }
    }
    domains
}

/// The sum over the constraints of the pods in the node's domain, times the logarithm of the number of domains.
fn raw_score(
    soft: &[Constraint],
    scored: &[&Node],
    cluster: &Cluster,
    pod: &Pod,
    node: &Node,
    needs_keys: bool,
) -> i64 {
    let mut score = 0.0;
    for constraint in soft {
        let Some(value) = labels(node).remove(&constraint.key) else {
            continue;
        };
        let value_of = |node: &Node| labels(node).remove(&constraint.key).unwrap_or_default();
        let (domains_len, count) = if constraint.key == HOSTNAME {
            (scored.len(), constraint.count(cluster, pod, node))
        } else {
            let domains: BTreeSet<_> = scored.iter().map(|node| value_of(node)).collect();
            let mut counted = cluster.nodes.iter().collect::<Vec<_>>();
            counted.retain(|other| {
                value_of(other) == value
                    && constraint.includes(pod, other)
                    && (!needs_keys || has_keys(soft, other))
            });
            (
                domains.len(),
                counted
                    .iter()
                    .map(|other| constraint.count(cluster, pod, other))
                    .sum(),
            )
        };
        let weight = (domains_len as f64 + 2.0).ln();
        score += small(count) * weight + small(constraint.max_skew - 1);
    }
    rounded(score)
}

#[expect(clippy::as_conversions, reason = "counts of a few pods")]
fn small(count: i64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "small, and rounded"
)]
fn rounded(score: f64) -> i64 {
    score.round() as i64
}

/// The fewer, the better; a node that is not scored has 0.
fn normalised(raw: &[Option<i64>]) -> Column {
    let max = raw.iter().flatten().copied().max().unwrap_or(0);
    let min = raw.iter().flatten().copied().min().unwrap_or(0);
    let share = |one: &Option<i64>| match one {
        None => 0,
        Some(_) if max == 0 => SCORE_MAX,
        Some(one) => SCORE_MAX * (max + min - one) / max,
    };
    Column {
        normalised: raw.iter().map(share).collect(),
        raw: raw.iter().map(|one| one.unwrap_or(0)).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]
    #[test]
    fn own_constraints_are_as_documented(
        cluster in input::clusters(),
        pod in incoming(constrained_pod()),
    ) {
        check(&PodTopologySpread::default(), &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn constraints_of_kubernetes_are_for_pods_of_workloads(
        cluster in input::clusters(),
        pod in incoming(input::pod()),
    ) {
        check(&PodTopologySpread::default(), &Value::Null, &cluster, &pod)?;
    }

    #[test]
    fn constraints_of_the_profile_are_for_pods_of_workloads(
        (defaults, args) in input::listed(),
        cluster in input::clusters(),
        pod in incoming(input::pod()),
    ) {
        check(&PodTopologySpread { defaults: Some(defaults) }, &args, &cluster, &pod)?;
    }
}
