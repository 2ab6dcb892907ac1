//! A scheduling attempt: filters, scores, the best nodes, and preemption if there are none.

mod attempt;
mod filtering;
mod scoring;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use attempt::{Attempt, Nomination, Outcome, PluginScores, Scores, Window};
pub(crate) use filtering::passes;

use crate::message;
use crate::node_state::NodeState;
use crate::plugins::{self, Cycle, CycleState, PreFilter, scheduling_gates};
use crate::pod::Pod;
use crate::preempt::{self, Preemption};
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::status::{Code, Plugin, Status};

/// Nodes below which all are looked at, and feasible nodes that are always enough to look for.
const FEASIBLE_MIN: usize = 100;
/// Percent of the nodes that are looked for at least, when it adapts to their number.
const PERCENTAGE_MIN: i64 = 5;

/// Decides for pods of one profile, one after another.
#[derive(Clone, Debug)]
pub struct Scheduler {
    profile: Arc<Profile>,
    /// The index of the node at which the next attempt begins.
    start: usize,
    /// The offset of the first node on which preemption is tried.
    preemption_offset: usize,
}

/// What PreFilter left.
struct Prepared {
    state: CycleState,
    /// The names of nodes that can pass; `None` for all.
    names: Option<BTreeSet<String>>,
    /// The plugins that narrowed the nodes.
    narrowed_by: BTreeSet<Plugin>,
}

impl Scheduler {
    /// A scheduler that begins with the first node.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            start: 0,
            preemption_offset: 0,
        }
    }

    /// The offset of the first node on which preemption is tried, which kube-scheduler draws for each attempt.
    pub fn set_preemption_offset(&mut self, offset: usize) {
        self.preemption_offset = offset;
    }

    /// Decides for a pod, of which nothing changes here: the caller binds it to one of the best nodes, or evicts victims.
    pub fn attempt(&mut self, snapshot: &Snapshot, pod: &Pod) -> Attempt {
        let mut attempt = Attempt::new(self.start);
        let gate = scheduling_gates::pre_enqueue(pod);
        if let Some(status) = gate.filter(|_| !self.profile.pre_enqueue.is_empty()) {
            attempt.outcome = Outcome::Gated(status);
            return attempt;
        }
        let profile = self.profile.clone();
        let cycle = Cycle {
            pod,
            snapshot,
            profile: &profile,
        };
        if snapshot.nodes_len() == 0 {
            attempt.outcome = Outcome::Unschedulable(message::NO_NODES.to_owned());
            attempt.nomination = Nomination::Clear;
            return attempt;
        }
        let decided = self.decide(cycle, &mut attempt);
        if let Err(error) = decided {
            attempt.outcome = Outcome::Error(error);
            attempt.nomination = Nomination::Clear;
        }
        if !matches!(attempt.outcome, Outcome::Unschedulable(_)) {
            attempt.unschedulable_plugins.clear();
        }
        attempt
    }

    fn decide(&mut self, cycle: Cycle<'_>, attempt: &mut Attempt) -> Result<(), String> {
        let mut prepared = match prepare(cycle) {
            Ok(prepared) => prepared,
            Err(status) if status.code == Code::Error => {
                let plugin = status.plugin.map(|plugin| plugin.to_string());
                let (plugin, message) = (plugin.unwrap_or_default(), status.message());
                return Err(format!("running PreFilter plugin {plugin:?}: {message}"));
            }
            Err(status) => {
                self.reject(cycle, attempt, &status);
                return Ok(());
            }
        };
        attempt.nodes = prepared.names.take();
        attempt
            .unschedulable_plugins
            .clone_from(&prepared.narrowed_by);
        let feasible = self.find(cycle, &prepared.state, attempt)?;
        attempt.feasible = feasible.iter().map(|node| node.node.name.clone()).collect();
        let rejecting = attempt.rejected.values().filter_map(|status| status.plugin);
        attempt.unschedulable_plugins.extend(rejecting);
        if feasible.is_empty() {
            self.post_filter(cycle, &prepared.state, attempt);
            return Ok(());
        }
        if feasible.len() > 1 {
            attempt.scores = Some(scoring::score(cycle, &feasible)?);
        }
        attempt.outcome = Outcome::Placed;
        attempt.nomination = Nomination::Keep;
        Ok(())
    }

    /// The feasible nodes: the nominated one alone, if it is.
    fn find<'a>(
        &mut self,
        cycle: Cycle<'a>,
        state: &CycleState,
        attempt: &mut Attempt,
    ) -> Result<Vec<&'a NodeState>, String> {
        let nominated = &cycle.pod.nominated_node;
        if let Some(node) = cycle.snapshot.node(nominated) {
            match passes(cycle, state, node) {
                Ok(()) => {
                    attempt.is_nominated_only = true;
                    return Ok(vec![node]);
                }
                // The other nodes are looked at then, and this one again.
                Err(status) if status.code == Code::Error => {}
                Err(status) => {
                    attempt.rejected.insert(nominated.clone(), status);
                }
            }
        }
        let nodes: Vec<&NodeState> = match &attempt.nodes {
            None => cycle.snapshot.nodes().collect(),
            Some(names) => {
                let names = |node: &&NodeState| names.contains(&node.node.name);
                let narrowed_by = attempt.unschedulable_plugins.iter();
                let plugins: Vec<_> = narrowed_by.map(ToString::to_string).collect();
                let plugins = plugins.join(" ");
                let reason = format!("node(s) didn't satisfy plugin(s) [{plugins}]");
                attempt.absent = Some(Status::unresolvable(reason));
                cycle.snapshot.nodes().filter(names).collect()
            }
        };
        // Without scores the first feasible node is the one.
        let limit = match self.profile.score.as_slice() {
            [] => 1,
            _ => feasible_max(self.profile.percentage, nodes.len()),
        };
        let looked = filtering::look(cycle, state, &nodes, self.start, limit);
        attempt.window = Window {
            start: self.start,
            limit,
            visited: looked.visited,
            next: 0,
        };
        attempt.rejected.extend(looked.rejected);
        let judged = looked.feasible.len() + attempt.rejected.len();
        self.start = (self.start + judged) % cycle.snapshot.nodes_len();
        attempt.window.next = self.start;
        match looked.error {
            Some(error) => Err(error),
            None => Ok(looked.feasible),
        }
    }

    /// A pod that PreFilter rejected.
    fn reject(&self, cycle: Cycle<'_>, attempt: &mut Attempt, status: &Status) {
        attempt.unschedulable_plugins.extend(status.plugin);
        attempt.pre_filter = Some(status.clone());
        let text = message::rejected_at_once(cycle.snapshot.nodes_len(), status);
        let has_devices = |plugins: &[Plugin]| plugins.contains(&Plugin::DynamicResources);
        if has_devices(&cycle.profile.pre_filter) && has_devices(&cycle.profile.post_filter) {
            // DynamicResources did not come to its PreFilter, and fails without what it would have left there.
            attempt.outcome = Outcome::Unschedulable(format!("{text} not found"));
            return;
        }
        self.preempt(cycle, &CycleState::default(), attempt, Vec::new(), text);
    }

    /// A pod that all nodes rejected.
    fn post_filter(&self, cycle: Cycle<'_>, state: &CycleState, attempt: &mut Attempt) {
        let absent = attempt.absent.as_ref().map(Status::message);
        let nodes_len = cycle.snapshot.nodes_len();
        let text = message::rejected(nodes_len, attempt.rejected.values(), absent.as_deref());
        let mut reasons = Vec::new();
        if cycle
            .profile
            .post_filter
            .contains(&Plugin::DynamicResources)
        {
            reasons.push("no new claims to deallocate".to_owned());
        }
        self.preempt(cycle, state, attempt, reasons, text);
    }

    fn preempt(
        &self,
        cycle: Cycle<'_>,
        state: &CycleState,
        attempt: &mut Attempt,
        mut reasons: Vec<String>,
        text: String,
    ) {
        if cycle
            .profile
            .post_filter
            .contains(&Plugin::DefaultPreemption)
        {
            let offset = self.preemption_offset;
            let preemption = preempt::preempt(cycle, state, &attempt.rejected, offset);
            attempt.nomination = nomination(&preemption);
            match &preemption.error {
                // A failure stands alone.
                Some(error) => reasons = vec![format!("preemption: {error}")],
                None => match &preemption.message {
                    Some(message) => reasons.push(format!("preemption: {message}")),
                    None => reasons.clear(),
                },
            }
            attempt.preemption = Some(preemption);
        }
        let text = message::with_post_filter(text, &reasons.join(", "));
        attempt.outcome = Outcome::Unschedulable(text);
    }
}

fn nomination(preemption: &Preemption) -> Nomination {
    if preemption.ineligible.is_some() || preemption.error.is_some() {
        Nomination::Keep
    } else if preemption.candidates.is_empty() {
        Nomination::Clear
    } else {
        Nomination::ToVictims
    }
}

/// Runs PreFilter of all plugins. An error rejects the pod.
fn prepare(cycle: Cycle<'_>) -> Result<Prepared, Status> {
    let mut prepared = Prepared {
        state: CycleState::default(),
        names: None,
        narrowed_by: BTreeSet::new(),
    };
    for &plugin in &cycle.profile.pre_filter {
        let result = plugins::pre_filter(plugin, cycle, &mut prepared.state);
        match result.map_err(|status| status.of(plugin))? {
            PreFilter::Done => {}
            PreFilter::Skip => {
                prepared.state.skipped.insert(plugin);
            }
            PreFilter::Nodes(names) => {
                prepared.narrowed_by.insert(plugin);
                prepared.names = Some(match prepared.names {
                    None => names,
                    Some(before) => before.intersection(&names).cloned().collect(),
                });
            }
        }
    }
    Ok(prepared)
}

/// The number of feasible nodes after which no more are looked for.
fn feasible_max(percentage: i32, nodes_len: usize) -> usize {
    if nodes_len < FEASIBLE_MIN {
        return nodes_len;
    }
    let len = i64::try_from(nodes_len).unwrap_or(i64::MAX);
    let percentage = match i64::from(percentage) {
        0 => (50 - len / 125).max(PERCENTAGE_MIN),
        given => given,
    };
    let max = usize::try_from(len.saturating_mul(percentage) / 100).unwrap_or(nodes_len);
    max.max(FEASIBLE_MIN)
}

/// The verdicts of nodes, by name.
pub(crate) type Verdicts = BTreeMap<String, Status>;

#[cfg(test)]
mod tests;
