//! A scheduling attempt: filters, scores, the best nodes, and preemption if there are none. A cluster may be in parts, each
//! with its own nodes: the decision is the same.

mod attempt;
mod exchange;
mod filtering;
mod gather;
mod judge;
mod part;
mod scoring;
mod turn;
mod vetoes;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use attempt::{Attempt, Nomination, Outcome, PluginScores, Scores, Window};
pub(crate) use exchange::merge_counts;
pub use exchange::{
    Answer, Candidates, Counts, Looked, PartId, Question, Ranges, Survey, Top, Trial,
};
pub(crate) use filtering::passes;
pub use gather::{Conclusion, Gather, Step};
pub use judge::Judge;
pub use part::Part;
pub use vetoes::Vetoes;

use crate::plugins::scheduling_gates;
use crate::pod::Pod;
use crate::profile::Profile;
use crate::snapshot::Snapshot;
use crate::status::Status;

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
        let whole = vec![(Part::whole(self.start), snapshot)];
        let attempt = self.decide(whole, pod);
        self.start = attempt.window.next;
        attempt
    }

    /// Decides for a pod and a cluster in parts: each has its own nodes with their pods, and all objects besides. All nodes
    /// are looked at.
    pub fn attempt_over(&mut self, parts: &[Snapshot], pod: &Pod) -> Attempt {
        let parts = (0..).zip(parts);
        let parts = parts.map(|(id, snapshot)| (Part::new(id), snapshot));
        self.decide(parts.collect(), pod)
    }

    fn decide(&self, mut parts: Vec<(Part, &Snapshot)>, pod: &Pod) -> Attempt {
        let mut attempt = Attempt::new(self.start);
        if let Some(status) = gate(&self.profile, pod) {
            attempt.outcome = Outcome::Gated(status);
            return attempt;
        }
        let mut gather = Gather::new(self.profile.clone(), pod, self.preemption_offset);
        let mut question = Question::Count;
        let conclusion = loop {
            let answers = parts
                .iter_mut()
                .map(|(part, snapshot)| part.answer(&self.profile, snapshot, pod, &question));
            let merged = answers.reduce(|mut all, more| {
                all.merge(more);
                all
            });
            let Some(merged) = merged else {
                return attempt;
            };
            match gather.next(merged) {
                Step::Ask(next) => question = next,
                Step::Done(conclusion) => break conclusion,
            }
        };
        attempt.conclude(*conclusion, parts.into_iter().map(|(part, _)| part));
        attempt
    }
}

/// The verdict on a pod that does not enter the queue.
pub fn gate(profile: &Profile, pod: &Pod) -> Option<Status> {
    let gate = scheduling_gates::pre_enqueue(pod);
    gate.filter(|_| !profile.pre_enqueue.is_empty())
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
