//! DefaultPreemption: the pods that would have to go from each node, and the node where that is best.

mod choice;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::budgets::Budget;
use crate::cycle::{Candidates, Trial, Verdicts, passes};
use crate::message::Reasons;
use crate::node_state::NodeState;
use crate::plugins::{self, Cycle, CycleState};
use crate::pod::{Pod, PodKey};
use crate::snapshot::Snapshot;
use crate::status::{Code, Status};

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// A node where the pod would fit without the victims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// What preemption found, once the candidates of all parts are known.
pub(crate) fn concluded(
    ineligible: Option<String>,
    candidates: Candidates,
    nodes_len: usize,
) -> Preemption {
    let mut preemption = Preemption {
        ineligible,
        best: choice::best(&candidates.found),
        candidates: candidates.found,
        ..Preemption::default()
    };
    if preemption.ineligible.is_some() {
        preemption.message.clone_from(&preemption.ineligible);
    } else if !preemption.candidates.is_empty() {
        // Nodes that failed do not matter then.
    } else if candidates.errors.is_empty() {
        let text = candidates.reasons.text(nodes_len, Some(NOT_HELPFUL));
        preemption.message = Some(text);
    } else {
        preemption.error = Some(crate::malformed::joined(&candidates.errors));
    }
    preemption
}

/// The reason for which a pod may not preempt now.
pub(crate) fn ineligible(never_preempts: bool, is_waiting: bool) -> Option<String> {
    let reason = if never_preempts {
        "not eligible due to preemptionPolicy=Never."
    } else if is_waiting {
        "not eligible due to a terminating pod on the nominated node."
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// Whether pods that were preempted are still leaving the nominated node. One that preemption cannot help is given up.
pub(crate) fn is_waiting(cycle: Cycle<'_>, rejected: &Verdicts) -> bool {
    let pod = cycle.pod;
    let verdict = rejected.get(&pod.nominated_node);
    let Some(node) = verdict
        .filter(|verdict| verdict.code != Code::UnschedulableAndUnresolvable)
        .and_then(|_| cycle.snapshot.node(&pod.nominated_node))
    else {
        return false;
    };
    let is_leaving = |other: &Arc<Pod>| other.priority < pod.priority && other.is_preempted;
    node.pods.iter().any(is_leaving)
}

fn is_resolvable(verdict: &Status) -> bool {
    verdict.code == Code::Unschedulable
}

/// The number of nodes whose verdict preemption could change.
pub(crate) fn potential_len(rejected: &Verdicts) -> usize {
    let verdicts = rejected.values();
    verdicts.filter(|verdict| is_resolvable(verdict)).count()
}

/// Tries the nodes whose verdict preemption could change, from the offset on, until enough are candidates: of those in all
/// parts, the share of this one.
pub(crate) fn try_nodes(
    cycle: Cycle<'_>,
    state: &CycleState,
    rejected: &Verdicts,
    trial: Trial,
) -> (Candidates, Verdicts) {
    let potential = |node: &&NodeState| rejected.get(&*node.name).is_some_and(is_resolvable);
    let potential: Vec<_> = cycle.snapshot.nodes().filter(potential).collect();
    let args = cycle.profile.preemption;
    let share = trial.potential_len * args.candidates_percentage / 100;
    let enough = share.max(args.candidates_min).min(trial.potential_len);
    let enough = (enough * potential.len()).div_ceil(trial.potential_len.max(1));
    let (mut tried, mut verdicts) = (Candidates::default(), Verdicts::new());
    for at in 0..potential.len() {
        let node = potential[(trial.offset + at) % potential.len()];
        match candidate(cycle, state.clone(), node.clone()) {
            Ok(candidate) => tried.found.push(candidate),
            Err(status) => {
                if status.code == Code::Error {
                    tried.errors.push(status.message());
                }
                verdicts.insert(node.name.to_string(), status);
            }
        }
        let is_clean = tried.found.iter().any(|one| one.budget_violations == 0);
        if is_clean && tried.found.len() >= enough {
            break;
        }
    }
    tried.reasons = Reasons::of(verdicts.values());
    (tried, verdicts)
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
        let name = &node.name;
        let reason = format!("expected at least one victim pod on node {name:?}");
        return Err(Status::error(reason));
    }
    Ok(choice::described(&node.name, &victims, budget_violations))
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
