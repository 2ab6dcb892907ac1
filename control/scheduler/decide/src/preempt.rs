//! DefaultPreemption: the pods that would have to go from each node, and the node where that is best.

mod choice;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::budgets::Budget;
use crate::cycle::{Verdicts, passes};
use crate::message;
use crate::node_state::NodeState;
use crate::plugins::{self, Cycle, CycleState};
use crate::pod::{Pod, PodKey};
use crate::snapshot::Snapshot;
use crate::status::{Code, Status};

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// A node where the pod would fit without the victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// The pods that would go, the most important first.
    pub victims: Vec<PodKey>,
    /// The number of victims that a budget protects.
    pub budget_violations: usize,
    /// The priority of the most important victim.
    pub highest_priority: i32,
    /// The sum of the victims' priorities, each plus 2^31.
    pub priority_sum: i64,
    /// The earliest start of the victims of highest priority; `None` if none of them has started.
    pub earliest_start: Option<Timestamp>,
}

/// What preemption found.
#[derive(Clone, Debug, Default)]
pub struct Preemption {
    /// The reason for which the pod may not preempt now.
    pub ineligible: Option<String>,
    /// The nodes from which victims could go.
    pub candidates: Vec<Candidate>,
    /// The verdicts of nodes that were tried and are no candidates.
    pub rejected: Verdicts,
    /// The nodes that the choice cannot distinguish, any of which is right.
    pub best: Vec<String>,
    /// The text of a preemption without candidates.
    pub message: Option<String>,
    /// The error of a preemption that failed.
    pub error: Option<String>,
}

impl Preemption {
    /// Pods of a lower priority that are nominated to a node lose their nomination once victims of `pod` go there.
    pub fn cleared_nominations(snapshot: &Snapshot, pod: &Pod, node: &str) -> Vec<PodKey> {
        let nominated = snapshot.nominated(node).iter();
        let lower = nominated.filter(|other| other.priority < pod.priority);
        lower.map(|other| other.key.clone()).collect()
    }
}

/// Tries preemption on the nodes whose verdict it could change.
pub(crate) fn preempt(
    cycle: Cycle<'_>,
    state: &CycleState,
    rejected: &Verdicts,
    offset: usize,
) -> Preemption {
    if let Some(reason) = ineligible(cycle, rejected) {
        return Preemption {
            message: Some(reason.clone()),
            ineligible: Some(reason),
            ..Preemption::default()
        };
    }
    let is_resolvable = |node: &&NodeState| {
        let verdict = rejected.get(&node.node.name);
        verdict.is_some_and(|verdict| verdict.code == Code::Unschedulable)
    };
    let potential: Vec<_> = cycle.snapshot.nodes().filter(is_resolvable).collect();
    let mut preemption = try_nodes(cycle, state, &potential, offset);
    if !preemption.candidates.is_empty() {
        preemption.error = None;
        preemption.best = choice::best(&preemption.candidates);
    } else if preemption.error.is_none() {
        let nodes_len = cycle.snapshot.nodes_len();
        let statuses = preemption.rejected.values();
        preemption.message = Some(message::rejected(nodes_len, statuses, Some(NOT_HELPFUL)));
    }
    preemption
}

fn ineligible(cycle: Cycle<'_>, rejected: &Verdicts) -> Option<String> {
    let pod = cycle.pod;
    if pod.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    // A nominated node that preemption cannot help is given up.
    let verdict = rejected.get(&pod.nominated_node)?;
    if verdict.code == Code::UnschedulableAndUnresolvable {
        return None;
    }
    let node = cycle.snapshot.node(&pod.nominated_node)?;
    let is_leaving = |other: &Arc<Pod>| other.priority < pod.priority && other.is_preempted;
    let waits = node.pods.iter().any(is_leaving);
    waits.then(|| "not eligible due to a terminating pod on the nominated node.".to_owned())
}

/// Tries nodes from the offset on, until enough are candidates.
fn try_nodes(
    cycle: Cycle<'_>,
    state: &CycleState,
    potential: &[&NodeState],
    offset: usize,
) -> Preemption {
    let mut preemption = Preemption::default();
    let args = cycle.profile.preemption;
    let share = potential.len() * args.candidates_percentage / 100;
    let enough = share.max(args.candidates_min).min(potential.len());
    let mut errors = Vec::new();
    for at in 0..potential.len() {
        let node = potential[(offset + at) % potential.len()];
        match candidate(cycle, state.clone(), node.clone()) {
            Ok(candidate) => preemption.candidates.push(candidate),
            Err(status) => {
                if status.code == Code::Error {
                    errors.push(status.message());
                }
                let name = node.node.name.clone();
                preemption.rejected.insert(name, status);
            }
        }
        let candidates = &preemption.candidates;
        let is_clean = candidates.iter().any(|one| one.budget_violations == 0);
        if is_clean && candidates.len() >= enough {
            break;
        }
    }
    if !errors.is_empty() {
        preemption.error = Some(crate::malformed::joined(&errors));
    }
    preemption
}

/// The victims on a node, of which `node` and `state` are copies to try on.
fn candidate(
    cycle: Cycle<'_>,
    mut state: CycleState,
    mut node: NodeState,
) -> Result<Candidate, Status> {
    let pod = cycle.pod;
    let lower = node
        .pods
        .iter()
        .filter(|other| other.priority < pod.priority);
    let mut potential: Vec<Arc<Pod>> = lower.cloned().collect();
    for other in &potential {
        take(cycle, &mut state, &mut node, other);
    }
    if potential.is_empty() {
        return Err(Status::unresolvable(NO_VICTIMS));
    }
    passes(cycle, &state, &node)?;
    potential.sort_by_key(|pod| choice::importance(pod));
    let (violating, others) = by_budget(&cycle.snapshot.budgets, potential);
    let is_mixed = !violating.is_empty() && !others.is_empty();
    let mut victims = Vec::new();
    for other in violating {
        victims.extend(reprieve(cycle, &mut state, &mut node, other));
    }
    let budget_violations = victims.len();
    for other in others {
        victims.extend(reprieve(cycle, &mut state, &mut node, other));
    }
    if is_mixed {
        victims.sort_by_key(|pod| choice::importance(pod));
    }
    if victims.is_empty() {
        let name = &node.node.name;
        let reason = format!("expected at least one victim pod on node {name:?}");
        return Err(Status::error(reason));
    }
    Ok(choice::described(
        &node.node.name,
        &victims,
        budget_violations,
    ))
}

fn take(cycle: Cycle<'_>, state: &mut CycleState, node: &mut NodeState, other: &Arc<Pod>) {
    node.remove(&other.key);
    plugins::count(cycle, state, other, node, -1);
}

/// Puts a pod back on the node; returned is a pod with which the incoming one does not fit.
fn reprieve(
    cycle: Cycle<'_>,
    state: &mut CycleState,
    node: &mut NodeState,
    other: Arc<Pod>,
) -> Option<Arc<Pod>> {
    node.add(other.clone());
    plugins::count(cycle, state, &other, node, 1);
    if passes(cycle, state, node).is_ok() {
        return None;
    }
    take(cycle, state, node, &other);
    Some(other)
}

/// The pods whose eviction would violate a budget, and the others; each pod takes from all budgets that select it.
fn by_budget(
    budgets: &BTreeMap<(String, String), Budget>,
    pods: Vec<Arc<Pod>>,
) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut allowed: Vec<_> = budgets
        .values()
        .map(|budget| (budget, i64::from(budget.allowed)))
        .collect();
    pods.into_iter().partition(|pod| {
        let mut is_violating = false;
        for (budget, allowed) in &mut allowed {
            if budget.counts(pod) {
                *allowed -= 1;
                is_violating |= *allowed < 0;
            }
        }
        is_violating
    })
}

#[cfg(test)]
mod tests;
