//! DefaultPreemption: the pods that would have to go from each node, and the node where that is best.

mod choice;

use std::borrow::Borrow;
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
    pub candidates: Vec<Arc<Candidate>>,
    /// The verdicts of nodes that were tried and are no candidates.
    pub rejected: Verdicts,
    /// The text of a preemption without candidates.
    pub message: Option<String>,
    /// The error of a preemption that failed.
    pub error: Option<String>,
}

/// The candidates, and why other nodes that were tried are none.
#[derive(Debug, Default)]
pub struct Tried {
    /// The candidates.
    pub found: Vec<Arc<Candidate>>,
    pub(crate) reasons: Reasons,
    pub(crate) errors: Vec<String>,
}

impl Tried {
    /// Candidates: why other nodes are none does not matter then.
    pub fn of(found: Vec<Arc<Candidate>>) -> Self {
        Self {
            found,
            ..Self::default()
        }
    }
}

impl From<Candidates> for Tried {
    fn from(all: Candidates) -> Self {
        Self {
            found: all.found.into_iter().map(Arc::new).collect(),
            reasons: all.reasons,
            errors: all.errors,
        }
    }
}

impl Preemption {
    /// The candidates that no criterion distinguishes, any of which is right, by the names of their nodes.
    pub fn best(&self) -> Vec<&Arc<Candidate>> {
        let mut best: Vec<_> = choice::best(&self.candidates).collect();
        best.sort_unstable_by_key(|one| &one.node);
        best
    }

    /// The first of them.
    pub fn chosen(&self) -> Option<&Arc<Candidate>> {
        choice::best(&self.candidates).min_by_key(|one| &one.node)
    }

    /// Pods of a lower priority that are nominated to a node lose their nomination once victims of `pod` go there.
    pub fn cleared_nominations(snapshot: &Snapshot, pod: &Pod, node: &str) -> Vec<PodKey> {
        let nominated = snapshot.nominated(node).iter();
        let lower = nominated.filter(|other| other.priority < pod.priority);
        lower.map(|other| other.key.clone()).collect()
    }
}

/// What preemption found, once the candidates of all parts are known.
pub(crate) fn concluded(ineligible: Option<String>, tried: Tried, nodes_len: usize) -> Preemption {
    let mut preemption = Preemption {
        ineligible,
        candidates: tried.found,
        ..Preemption::default()
    };
    if preemption.ineligible.is_some() {
        preemption.message.clone_from(&preemption.ineligible);
    } else if !preemption.candidates.is_empty() {
        // Nodes that failed do not matter then.
    } else if tried.errors.is_empty() {
        let text = tried.reasons.text(nodes_len, Some(NOT_HELPFUL));
        preemption.message = Some(text);
    } else {
        preemption.error = Some(crate::malformed::joined(&tried.errors));
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
pub(crate) fn is_waiting(cycle: Cycle<'_>, verdict: Option<&Status>) -> bool {
    let pod = cycle.pod;
    let Some(node) = verdict
        .filter(|verdict| verdict.code != Code::UnschedulableAndUnresolvable)
        .and_then(|_| cycle.snapshot.node(&pod.nominated_node))
    else {
        return false;
    };
    let is_leaving = |other: &Arc<Pod>| other.priority < pod.priority && other.is_preempted;
    node.pods.iter().any(is_leaving)
}

/// Whether preemption could change a verdict.
pub(crate) fn is_resolvable(verdict: &Status) -> bool {
    verdict.code == Code::Unschedulable
}

/// The number of nodes whose verdict preemption could change.
pub(crate) fn potential_len(rejected: &Verdicts) -> usize {
    let verdicts = rejected.values();
    verdicts.filter(|verdict| is_resolvable(verdict)).count()
}

/// Tries nodes until enough are candidates, of which one violates no budget.
pub(crate) fn until_enough<N, C: Borrow<Candidate>>(
    nodes: impl Iterator<Item = N>,
    enough: usize,
    mut try_on: impl FnMut(N) -> Option<C>,
) -> Vec<C> {
    let mut found = Vec::new();
    let mut is_clean = false;
    for node in nodes {
        if let Some(candidate) = try_on(node) {
            is_clean |= candidate.borrow().budget_violations == 0;
            found.push(candidate);
        }
        if is_clean && found.len() >= enough {
            break;
        }
    }
    found
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
    let enough = trial.enough(cycle.profile.preemption, potential.len());
    let (mut tried, mut verdicts) = (Candidates::default(), Verdicts::new());
    let from_offset = (0..potential.len()).map(|at| (trial.offset + at) % potential.len());
    tried.found = until_enough(from_offset, enough, |at| {
        let node = potential[at];
        match candidate(cycle, state.clone(), node.clone()) {
            Ok(candidate) => Some(candidate),
            Err(status) => {
                if status.code == Code::Error {
                    tried.errors.push(status.message());
                }
                verdicts.insert(node.name.to_string(), status);
                None
            }
        }
    });
    tried.reasons = Reasons::of(verdicts.values());
    (tried, verdicts)
}

/// The victims on a node, of which `node` and `state` are copies to try on.
pub(crate) fn candidate(
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
