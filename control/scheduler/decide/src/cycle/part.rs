//! The share of one part of a cluster in an attempt: what it counts, filters and scores of its own nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::exchange::{Answer, Candidates, Counts, Looked, PartId, Question, Ranges, Survey};
use super::exchange::{Top, Trial};
use super::{
    PluginScores, Scores, Verdicts, Vetoes, Window, feasible_max, filtering, passes, scoring,
};
use crate::message::Reasons;
use crate::node_state::NodeState;
use crate::plugins::{self, Cycle, CycleState, PreFilter};
use crate::pod::Pod;
use crate::preempt;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::status::{Code, Plugin, Status};

/// An attempt at one part of a cluster. Nodes that disappear between two questions do not count from then on.
#[derive(Clone, Default)]
pub struct Part {
    id: PartId,
    /// The index of the first node, if the part is the whole cluster: only then enough feasible nodes end the search.
    pub(super) start: Option<usize>,
    state: CycleState,
    /// The names of nodes that can pass; `None` for all.
    pub(super) names: Option<BTreeSet<String>>,
    /// The plugins that narrowed the nodes.
    narrowed_by: BTreeSet<Plugin>,
    pub(super) absent: Option<Status>,
    pub(super) feasible: Vec<String>,
    pub(super) rejected: Verdicts,
    pub(super) is_nominated_only: bool,
    pub(super) window: Window,
    /// The nodes that extenders rejected.
    pub(super) vetoes: Arc<Vetoes>,
    pub(super) scores: Vec<PluginScores>,
    /// For each of them, whether a node's score is outside of the range.
    ignored: Vec<Vec<bool>>,
    /// Empty if they are not scored.
    pub(super) totals: Vec<i64>,
    /// Nodes that preemption was tried on, and cannot help.
    pub(super) preempt_rejected: Verdicts,
}

impl Part {
    /// The share of a part that is not the only one. It looks at all its nodes.
    pub fn new(id: PartId) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// The share of a part that is the whole cluster.
    pub(super) fn whole(start: usize) -> Self {
        Self {
            start: Some(start),
            window: Window {
                start,
                next: start,
                ..Window::default()
            },
            ..Self::default()
        }
    }

    /// Answers the next question about a pod.
    pub fn answer(
        &mut self,
        profile: &Profile,
        snapshot: &Snapshot,
        pod: &Pod,
        question: &Question,
    ) -> Answer {
        let cycle = Cycle {
            pod,
            snapshot,
            profile,
        };
        match question {
            Question::Count => Answer::Counts(self.count(cycle)),
            Question::Look(counts) => Answer::Looked(Box::new(self.look(cycle, counts))),
            Question::Score(survey) => Answer::Ranges(self.score(cycle, survey)),
            Question::Weigh(ranges) => Answer::Top(self.weigh(ranges)),
            Question::Preempt(trial) => Answer::Candidates(self.preempt(cycle, *trial)),
        }
    }

    /// The best nodes of this part, in the order in which they were looked at.
    pub fn best(&self) -> impl Iterator<Item = &str> {
        let largest = self.totals.iter().max();
        let is_best = move |at: &usize| self.totals.get(*at) == largest;
        let best = (0..self.feasible.len()).filter(is_best);
        best.map(|at| self.feasible[at].as_str())
    }

    /// The feasible nodes, in the order in which they were looked at.
    pub fn feasible(&self) -> &[String] {
        &self.feasible
    }

    /// Runs PreFilter of all plugins.
    fn count(&mut self, cycle: Cycle<'_>) -> Counts {
        let mut counts = Counts {
            nodes_len: cycle.snapshot.nodes_len(),
            ..Counts::default()
        };
        if counts.nodes_len == 0 && self.start.is_some() {
            return counts;
        }
        for &plugin in &cycle.profile.pre_filter {
            match plugins::pre_filter(plugin, cycle, &mut self.state, &mut counts) {
                Ok(PreFilter::Done) => {}
                Ok(PreFilter::Skip) => {
                    self.state.skipped.insert(plugin);
                }
                Ok(PreFilter::Nodes(names)) => {
                    self.narrowed_by.insert(plugin);
                    self.names = Some(match self.names.take() {
                        None => names,
                        Some(before) => before.intersection(&names).cloned().collect(),
                    });
                }
                Err(status) => {
                    counts.refused = Some(status.of(plugin));
                    return counts;
                }
            }
        }
        counts
    }

    fn look(&mut self, cycle: Cycle<'_>, counts: &Counts) -> Looked {
        for &plugin in &cycle.profile.pre_filter {
            if plugins::is_idle(plugin, cycle, &mut self.state, counts) {
                self.state.skipped.insert(plugin);
            }
        }
        let (feasible, error) = match self.find(cycle) {
            Ok(feasible) => (feasible, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let rejecting = self.rejected.values().filter_map(|status| status.plugin);
        Looked {
            feasible_len: feasible.len(),
            sole: (feasible.len() == 1).then_some(self.id),
            is_nominated_only: self.is_nominated_only,
            reasons: Reasons::of(self.rejected.values()),
            plugins: rejecting.chain(self.narrowed_by.iter().copied()).collect(),
            absent: self.absent.as_ref().map(Status::message),
            potential_len: preempt::potential_len(&self.rejected),
            is_waiting: preempt::is_waiting(cycle, self.rejected.get(&*cycle.pod.nominated_node)),
            error,
            survey: self.survey(cycle, &feasible),
        }
    }

    /// The feasible nodes: the nominated one alone, if it is.
    fn find<'a>(&mut self, cycle: Cycle<'a>) -> Result<Vec<&'a NodeState>, String> {
        let nominated = &cycle.pod.nominated_node;
        if let Some(node) = cycle.snapshot.node(nominated) {
            match passes(cycle, &self.state, node) {
                Ok(()) => {
                    let mut sole = vec![node];
                    self.veto(&mut sole);
                    if !sole.is_empty() {
                        self.is_nominated_only = true;
                        self.feasible.push(nominated.to_string());
                        return Ok(sole);
                    }
                }
                // The other nodes are looked at then, and this one again.
                Err(status) if status.code == Code::Error => {}
                Err(status) => {
                    self.rejected.insert(nominated.to_string(), status);
                }
            }
        }
        let nodes = self.nodes(cycle.snapshot);
        let limit = match (self.start, cycle.profile.score.as_slice()) {
            // Without scores the first feasible node is the one.
            (_, []) => 1,
            (Some(_), _) => feasible_max(cycle.profile.percentage, nodes.len()),
            (None, _) => nodes.len(),
        };
        let start = self.start.unwrap_or(0);
        let mut looked = filtering::look(cycle, &self.state, &nodes, start, limit);
        self.rejected.extend(looked.rejected);
        let judged = looked.feasible.len() + self.rejected.len();
        self.window = Window {
            start,
            limit,
            visited: looked.visited,
            next: (start + judged) % cycle.snapshot.nodes_len().max(1),
        };
        if let Some(error) = looked.error {
            return Err(error);
        }
        self.veto(&mut looked.feasible);
        let names = looked.feasible.iter().map(|node| node.name.to_string());
        self.feasible = names.collect();
        Ok(looked.feasible)
    }

    /// The nodes that PreFilter left.
    fn nodes<'a>(&mut self, snapshot: &'a Snapshot) -> Vec<&'a NodeState> {
        let Some(names) = &self.names else {
            return snapshot.nodes().collect();
        };
        let plugins = self.narrowed_by.iter().map(ToString::to_string);
        let plugins = plugins.collect::<Vec<_>>().join(" ");
        let reason = format!("node(s) didn't satisfy plugin(s) [{plugins}]");
        self.absent = Some(Status::unresolvable(reason));
        let is_named = |node: &&NodeState| names.contains(&*node.name);
        snapshot.nodes().filter(is_named).collect()
    }

    /// Counts for the scores. A single node is not scored, unless other parts have more.
    fn survey(&self, cycle: Cycle<'_>, feasible: &[&NodeState]) -> Result<Survey, String> {
        if self.start.is_some() && feasible.len() < 2 {
            return Ok(Survey::default());
        }
        scoring::survey(cycle, feasible)
    }

    fn score(&mut self, cycle: Cycle<'_>, survey: &Survey) -> Ranges {
        self.feasible
            .retain(|name| cycle.snapshot.node(name).is_some());
        let names = self.feasible.iter();
        let nodes: Vec<_> = names.filter_map(|name| cycle.snapshot.node(name)).collect();
        let scored = scoring::score(cycle, survey, &nodes);
        (self.scores, self.ignored) = scored.into_iter().unzip();
        scoring::ranges(&self.scores, &self.ignored)
    }

    fn weigh(&mut self, ranges: &Ranges) -> Result<Top, String> {
        scoring::normalize(&mut self.scores, &self.ignored, ranges);
        self.totals = scoring::weigh(&mut self.scores, self.feasible.len())?;
        let ties = self.best().count();
        Ok(Top {
            total: self.totals.iter().copied().max().unwrap_or(0),
            ties: (ties > 0).then_some((self.id, ties)).into_iter().collect(),
        })
    }

    fn preempt(&mut self, cycle: Cycle<'_>, trial: Trial) -> Candidates {
        let tried = preempt::try_nodes(cycle, &self.state, &self.rejected, trial);
        let (mut candidates, rejected) = tried;
        candidates.parts = vec![self.id; candidates.found.len()];
        self.preempt_rejected = rejected;
        candidates
    }

    /// The scores of all plugins, if the nodes were weighed.
    pub(super) fn into_scores(self) -> Option<Scores> {
        let is_weighed = !self.totals.is_empty();
        is_weighed.then_some(Scores {
            plugins: self.scores,
            total: self.totals,
        })
    }
}
