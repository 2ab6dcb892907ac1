//! The score of PodTopologySpread: fewer matching pods in the node's domains are better.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::{HOSTNAME, constraints, matching};
use crate::node_state::NodeState;
use crate::plugins::normalize::{SCORE_MAX, truncated};
use crate::plugins::{Cycle, Scorer};
use crate::spread::{Action, Constraint};

/// A constraint with what is counted for it.
struct Weighed<'a> {
    constraint: Cow<'a, Constraint>,
    /// The matching pods of each domain that has a feasible node; empty where domains are single nodes.
    pods: HashMap<String, i64>,
    weight: f64,
}

struct Spread<'a> {
    namespace: &'a str,
    constraints: Vec<Weighed<'a>>,
    /// Feasible nodes that lack a topology key, in the order of nodes.
    ignored: BTreeSet<String>,
    /// Whether each feasible node is ignored.
    is_ignored: Vec<bool>,
}

/// Skips pods without soft constraints.
pub(crate) fn scorer<'a>(
    cycle: Cycle<'a>,
    feasible: &[&NodeState],
) -> Result<Option<Box<dyn Scorer + 'a>>, String> {
    let constraints = constraints(cycle, Action::ScheduleAnyway).map_err(|error| {
        let which = "obtaining pod's soft topology spread constraints";
        format!("calculating preScoreState: {which}: {error}")
    })?;
    if constraints.is_empty() {
        return Ok(None);
    }
    let needs_keys = cycle.pod.spread.is_some() || !cycle.profile.spread.is_system;
    let is_ignored = |node: &&&NodeState| {
        let all = constraints.iter().map(Cow::as_ref);
        needs_keys && !Constraint::all_keyed(all, &node.node.labels)
    };
    let ignored = feasible.iter().filter(is_ignored);
    let mut spread = Spread {
        namespace: &cycle.pod.key.namespace,
        ignored: ignored.map(|node| node.node.name.clone()).collect(),
        is_ignored: feasible.iter().map(|node| is_ignored(&node)).collect(),
        constraints: Vec::new(),
    };
    let counted = feasible.iter().filter(|node| !is_ignored(node));
    let counted: Vec<_> = counted.collect();
    spread.constraints = constraints
        .into_iter()
        .map(|constraint| Weighed::new(constraint, &counted))
        .collect();
    spread.count(cycle, needs_keys);
    Ok(Some(Box::new(spread)))
}

fn domain<'a>(node: &'a NodeState, constraint: &Constraint) -> Option<&'a str> {
    let value = node.node.labels.get(&constraint.topology_key);
    value.map(String::as_str)
}

impl<'a> Weighed<'a> {
    /// A node without the key belongs to a domain with an empty name.
    fn new(constraint: Cow<'a, Constraint>, feasible: &[&&NodeState]) -> Self {
        let is_by_node = constraint.topology_key == HOSTNAME;
        let named = feasible.iter().filter(|_| !is_by_node);
        let domains = named.map(|node| domain(node, &constraint).unwrap_or_default().to_owned());
        let pods: HashMap<_, _> = domains.map(|name| (name, 0)).collect();
        let len = if is_by_node {
            feasible.len()
        } else {
            pods.len()
        };
        Self {
            constraint,
            pods,
            weight: ((len + 2) as f64).ln(),
        }
    }
}

impl Spread<'_> {
    /// Counts over all nodes, in domains that have a feasible one.
    fn count(&mut self, cycle: Cycle<'_>, needs_keys: bool) {
        for node in cycle.snapshot.nodes() {
            let all = self.constraints.iter().map(|one| one.constraint.as_ref());
            if needs_keys && !Constraint::all_keyed(all, &node.node.labels) {
                continue;
            }
            for one in &mut self.constraints {
                let constraint = &one.constraint;
                let name = domain(node, constraint).unwrap_or_default();
                let Some(pods) = one.pods.get_mut(name) else {
                    continue;
                };
                if constraint.includes(cycle.pod, &node.node) {
                    *pods += matching(node, &constraint.selector, self.namespace);
                }
            }
        }
    }
}

impl Scorer for Spread<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        if self.ignored.contains(&node.node.name) {
            return 0;
        }
        let mut score = 0.0;
        for one in &self.constraints {
            let Some(name) = domain(node, &one.constraint) else {
                continue;
            };
            let pods = if one.constraint.topology_key == HOSTNAME {
                matching(node, &one.constraint.selector, self.namespace)
            } else {
                one.pods.get(name).copied().unwrap_or(0)
            };
            score += pods as f64 * one.weight + (one.constraint.max_skew - 1) as f64;
        }
        truncated(score.round())
    }

    fn normalize(&self, scores: &mut [i64]) {
        let counted = scores.iter().zip(&self.is_ignored);
        let counted = counted.filter(|(_, is_ignored)| !**is_ignored);
        let counted: Vec<i64> = counted.map(|(score, _)| *score).collect();
        let fewest = counted.iter().copied().min().unwrap_or(i64::MAX);
        let most = counted.iter().copied().max().unwrap_or(0).max(0);
        for (score, is_ignored) in scores.iter_mut().zip(&self.is_ignored) {
            *score = if *is_ignored {
                0
            } else if most == 0 {
                SCORE_MAX
            } else {
                SCORE_MAX * (most + fewest - *score) / most
            };
        }
    }
}
