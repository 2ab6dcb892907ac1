//! The exchange of an attempt: what is asked of each part of a cluster, and the answers, which are merged before the next
//! question. Merging is associative, so answers can be merged on their way.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::message::Reasons;
use crate::plugins::{inter_pod_affinity, pod_topology_spread};
use crate::preempt::Candidate;
use crate::profile::PreemptionArgs;
use crate::status::{Plugin, Status};

/// The number of a part.
pub type PartId = u32;

/// A question to all parts. Each carries the merged answers to the one before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// What plugins count over the nodes.
    Count,
    /// The nodes that pass the filters.
    Look(Box<Counts>),
    /// Their scores.
    Score(Survey),
    /// Those with the largest total.
    Weigh(Ranges),
    /// The nodes from which pods of a lower priority could go.
    Preempt(Trial),
}

/// The answer of a part, or of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Count`].
    Counts(Counts),
    /// To [`Question::Look`].
    Looked(Box<Looked>),
    /// To [`Question::Score`].
    Ranges(Ranges),
    /// To [`Question::Weigh`]. An error fails the attempt.
    Top(Result<Top, String>),
    /// To [`Question::Preempt`].
    Candidates(Candidates),
}

/// What the plugins count before a node is filtered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    pub(crate) nodes_len: usize,
    /// The verdict with which PreFilter rejects the pod: the same in all parts.
    pub(crate) refused: Option<Status>,
    /// The pod's claims for one pod that a pod on a node uses.
    pub(crate) claims_in_use: BTreeSet<String>,
    /// The matching pods by domain, for each hard constraint.
    pub(crate) spread: Vec<HashMap<String, i64>>,
    pub(crate) affinity: inter_pod_affinity::filter::Matches,
}

/// What the filters left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    pub(crate) feasible_len: usize,
    /// The part with the only feasible node.
    pub(crate) sole: Option<PartId>,
    /// The nominated node passed, so that no other counts.
    pub(crate) is_nominated_only: bool,
    pub(crate) reasons: Reasons,
    /// The plugins that rejected a node, or narrowed the nodes.
    pub(crate) plugins: BTreeSet<Plugin>,
    /// The reason for all nodes that PreFilter excluded.
    pub(crate) absent: Option<String>,
    /// The number of nodes where preemption may help.
    pub(crate) potential_len: usize,
    /// Pods that were preempted are still leaving the nominated node.
    pub(crate) is_waiting: bool,
    /// The error at which the search ended.
    pub(crate) error: Option<String>,
    /// An error fails the attempt if nodes are scored.
    pub(crate) survey: Result<Survey, String>,
}

/// What the plugins count before a node is scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    pub(crate) nodes_len: usize,
    pub(crate) spread: pod_topology_spread::score::Domains,
    pub(crate) affinity: inter_pod_affinity::score::Weights,
}

/// The least and the largest score of each plugin, before they are normalized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges(pub(crate) BTreeMap<Plugin, (i64, i64)>);

/// The largest total, and the number of nodes that have it in each part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    pub(crate) total: i64,
    pub(crate) ties: BTreeMap<PartId, usize>,
}

/// On how many nodes preemption is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The number of nodes where it may help, in all parts.
    pub(crate) potential_len: usize,
    /// The first one, in the order of each part.
    pub(crate) offset: usize,
}

/// What preemption found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidates {
    pub(crate) found: Vec<Candidate>,
    /// The part of each.
    pub(crate) parts: Vec<PartId>,
    /// The reasons of nodes that were tried and are no candidates.
    pub(crate) reasons: Reasons,
    pub(crate) errors: Vec<String>,
}

impl Trial {
    /// The first node that is tried, among those where preemption may help.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of candidates that are enough of so many nodes.
    pub(crate) fn enough(&self, args: PreemptionArgs, potential_len: usize) -> usize {
        let share = self.potential_len * args.candidates_percentage / 100;
        let enough = share.max(args.candidates_min).min(self.potential_len);
        (enough * potential_len).div_ceil(self.potential_len.max(1))
    }
}

impl Answer {
    /// Merges the answer of other parts to the same question. One to another question is dropped.
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Counts(all), Self::Counts(more)) => all.merge(more),
            (Self::Looked(all), Self::Looked(more)) => all.merge(*more),
            (Self::Ranges(all), Self::Ranges(more)) => all.merge(more),
            (Self::Top(all), Self::Top(more)) => match (all, more) {
                (Ok(all), Ok(more)) => all.merge(more),
                (Err(_), _) => {}
                (all, error) => *all = error,
            },
            (Self::Candidates(all), Self::Candidates(more)) => all.merge(more),
            _ => {}
        }
    }
}

/// Adds counts to counts.
pub(crate) fn merge_counts(all: &mut HashMap<String, i64>, more: HashMap<String, i64>) {
    for (name, count) in more {
        *all.entry(name).or_default() += count;
    }
}

impl Counts {
    fn merge(&mut self, more: Self) {
        self.nodes_len += more.nodes_len;
        self.refused = self.refused.take().or(more.refused);
        self.claims_in_use.extend(more.claims_in_use);
        for (all, more) in self.spread.iter_mut().zip(more.spread) {
            merge_counts(all, more);
        }
        self.affinity.merge(more.affinity);
    }
}

impl Looked {
    fn merge(&mut self, more: Self) {
        if self.is_nominated_only {
            return;
        }
        if more.is_nominated_only {
            *self = more;
            return;
        }
        self.feasible_len += more.feasible_len;
        let sole = self.sole.take().or(more.sole);
        self.sole = sole.filter(|_| self.feasible_len == 1);
        self.reasons.merge(more.reasons);
        self.plugins.extend(more.plugins);
        self.absent = self.absent.take().or(more.absent);
        self.potential_len += more.potential_len;
        self.is_waiting |= more.is_waiting;
        self.error = self.error.take().or(more.error);
        match (&mut self.survey, more.survey) {
            (Ok(all), Ok(more)) => all.merge(more),
            (Err(_), _) => {}
            (all, error) => *all = error,
        }
    }
}

impl Survey {
    fn merge(&mut self, more: Self) {
        self.nodes_len += more.nodes_len;
        self.spread.merge(more.spread);
        self.affinity.merge(more.affinity);
    }
}

impl Ranges {
    fn merge(&mut self, more: Self) {
        for (plugin, (least, largest)) in more.0 {
            let range = self.0.entry(plugin).or_insert((least, largest));
            *range = (range.0.min(least), range.1.max(largest));
        }
    }
}

impl Top {
    /// One node of a part.
    pub(crate) fn sole(part: PartId) -> Self {
        Self {
            total: 0,
            ties: BTreeMap::from([(part, 1)]),
        }
    }

    fn merge(&mut self, more: Self) {
        let is_less = more.ties.is_empty() || more.total < self.total;
        if self.ties.is_empty() || !is_less && more.total > self.total {
            *self = more;
        } else if !is_less {
            self.ties.extend(more.ties);
        }
    }

    /// A uniform choice among all nodes with the largest total, from a random number: the part, and the index of the node
    /// among those of the part.
    pub fn draw(&self, random: u64) -> Option<(PartId, usize)> {
        let all: usize = self.ties.values().sum();
        let len = u128::try_from(all).ok()?;
        let mut at = usize::try_from((u128::from(random) * len) >> 64).ok()?;
        for (part, ties) in &self.ties {
            if at < *ties {
                return Some((*part, at));
            }
            at -= ties;
        }
        None
    }
}

impl Candidates {
    fn merge(&mut self, more: Self) {
        self.found.extend(more.found);
        self.parts.extend(more.parts);
        self.reasons.merge(more.reasons);
        self.errors.extend(more.errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(total: i64, ties: &[(PartId, usize)]) -> Top {
        let ties = ties.iter().copied().collect();
        Top { total, ties }
    }

    #[test]
    fn ties_of_parts_are_drawn_in_proportion() {
        let mut all = top(0, &[]);
        for more in [
            top(3, &[(0, 5)]),
            top(7, &[(1, 1)]),
            top(7, &[(2, 3)]),
            top(0, &[]),
        ] {
            all.merge(more);
        }
        assert_eq!(all, top(7, &[(1, 1), (2, 3)]));
        let quarter = u64::MAX / 4;
        assert_eq!(all.draw(0), Some((1, 0)));
        assert_eq!(all.draw(quarter + 1), Some((2, 0)));
        assert_eq!(all.draw(u64::MAX), Some((2, 2)));
        assert_eq!(top(0, &[]).draw(0), None);
    }
}
