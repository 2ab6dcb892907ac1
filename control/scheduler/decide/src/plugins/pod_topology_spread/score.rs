//! The score of PodTopologySpread: fewer matching pods in the node's domains are better.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{HOSTNAME, constraints, matching};
use crate::cycle::merge_counts;
use crate::node_state::NodeState;
use crate::plugins::normalize::{SCORE_MAX, truncated};
use crate::plugins::{Cycle, Scorer};
use crate::spread::{Action, Constraint};

/// What is counted for the constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Domains {
    /// The number of feasible nodes that are not ignored.
    feasible_len: usize,
    constraints: Vec<Counted>,
}

/// What is counted for a constraint; nothing where domains are single nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    /// The domains that have a feasible node. A node without the key belongs to a domain with an empty name.
    feasible: HashSet<String>,
    /// The matching pods of each domain.
    pods: HashMap<String, i64>,
}

/// The constraints of a pod.
struct Soft<'a> {
    constraints: Vec<Cow<'a, Constraint>>,
    /// Nodes that lack a topology key are ignored.
    needs_keys: bool,
}

struct Spread<'a> {
    namespace: &'a str,
    soft: Soft<'a>,
    counted: &'a Domains,
    /// Those of the constraints.
    weights: Vec<f64>,
}

impl<'a> Soft<'a> {
    fn of(cycle: Cycle<'a>) -> Result<Self, String> {
        let constraints = constraints(cycle, Action::ScheduleAnyway).map_err(|error| {
            let which = "obtaining pod's soft topology spread constraints";
            format!("calculating preScoreState: {which}: {error}")
        })?;
        Ok(Self {
            constraints,
            needs_keys: cycle.pod.spread.is_some() || !cycle.profile.spread.is_system,
        })
    }

    fn ignores(&self, node: &NodeState) -> bool {
        let all = self.constraints.iter().map(Cow::as_ref);
        self.needs_keys && !Constraint::all_keyed(all, &node.node.labels)
    }

    fn counted<'s>(
        &'s self,
        domains: &'s mut Domains,
    ) -> impl Iterator<Item = (&'s Constraint, &'s mut Counted)> {
        let constraints = self.constraints.iter().map(Cow::as_ref);
        let all = constraints.zip(&mut domains.constraints);
        all.filter(|(constraint, _)| constraint.topology_key != HOSTNAME)
    }
}

/// Counts the domains of feasible nodes, and the matching pods of all nodes.
pub(crate) fn survey(cycle: Cycle<'_>, feasible: &[&NodeState]) -> Result<Domains, String> {
    let soft = Soft::of(cycle)?;
    let mut domains = Domains {
        feasible_len: 0,
        constraints: vec![Counted::default(); soft.constraints.len()],
    };
    if soft.constraints.is_empty() {
        return Ok(domains);
    }
    for node in feasible.iter().filter(|node| !soft.ignores(node)) {
        domains.feasible_len += 1;
        for (constraint, counted) in soft.counted(&mut domains) {
            let name = domain(node, constraint).unwrap_or_default();
            if !counted.feasible.contains(name) {
                counted.feasible.insert(name.to_owned());
            }
        }
    }
    for node in cycle.snapshot.nodes().filter(|node| !soft.ignores(node)) {
        for (constraint, counted) in soft.counted(&mut domains) {
            if constraint.includes(cycle.pod, &node.node) {
                let pods = matching(node, &constraint.selector, &cycle.pod.key.namespace);
                let name = domain(node, constraint).unwrap_or_default();
                *counted.pods.entry(name.to_owned()).or_default() += pods;
            }
        }
    }
    Ok(domains)
}

/// Skips pods without soft constraints.
pub(crate) fn scorer<'a>(cycle: Cycle<'a>, counted: &'a Domains) -> Option<Box<dyn Scorer + 'a>> {
    let soft = Soft::of(cycle).ok()?;
    if soft.constraints.is_empty() {
        return None;
    }
    let weight = |(constraint, one): (&Cow<'_, Constraint>, &Counted)| {
        let len = if constraint.topology_key == HOSTNAME {
            counted.feasible_len
        } else {
            one.feasible.len()
        };
        ((len + 2) as f64).ln()
    };
    let weights = soft.constraints.iter().zip(&counted.constraints);
    Some(Box::new(Spread {
        namespace: &cycle.pod.key.namespace,
        weights: weights.map(weight).collect(),
        soft,
        counted,
    }))
}

fn domain<'a>(node: &'a NodeState, constraint: &Constraint) -> Option<&'a str> {
    let value = node.node.labels.get(&constraint.topology_key);
    value.map(String::as_str)
}

impl Domains {
    /// Adds what was counted on other nodes.
    pub(crate) fn merge(&mut self, more: Self) {
        self.feasible_len += more.feasible_len;
        for (all, more) in self.constraints.iter_mut().zip(more.constraints) {
            all.feasible.extend(more.feasible);
            merge_counts(&mut all.pods, more.pods);
        }
    }
}

impl Scorer for Spread<'_> {
    fn score(&self, node: &NodeState) -> i64 {
        if self.soft.ignores(node) {
            return 0;
        }
        let mut score = 0.0;
        let counted = self.counted.constraints.iter();
        let constraints = self.soft.constraints.iter().zip(counted);
        for ((constraint, counted), weight) in constraints.zip(&self.weights) {
            let Some(name) = domain(node, constraint) else {
                continue;
            };
            let pods = if constraint.topology_key == HOSTNAME {
                matching(node, &constraint.selector, self.namespace)
            } else {
                counted.pods.get(name).copied().unwrap_or(0)
            };
            score += pods as f64 * weight + (constraint.max_skew - 1) as f64;
        }
        truncated(score.round())
    }

    fn ignores(&self, node: &NodeState) -> bool {
        self.soft.ignores(node)
    }
}

/// A score in the range from 0 to 100: the least is best.
pub(crate) fn normalized(score: i64, (fewest, most): (i64, i64)) -> i64 {
    let most = most.max(0);
    if most == 0 {
        return SCORE_MAX;
    }
    SCORE_MAX * (most + fewest - score) / most
}
