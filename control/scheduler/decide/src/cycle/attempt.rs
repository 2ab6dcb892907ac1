//! What an attempt found, and what is to do.

use std::collections::BTreeSet;

use super::{Conclusion, Part, Verdicts};
use crate::preempt::Preemption;
use crate::status::{Plugin, Status};

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod does not enter the queue.
    Gated(Status),
    /// One of the best nodes is to have the pod.
    Placed,
    /// No node can have the pod now; the text of its condition.
    Unschedulable(String),
    /// The attempt failed; the error.
    Error(String),
}

/// What becomes of the pod's nomination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nomination {
    /// It stays, until the pod is bound.
    Keep,
    /// It is removed.
    Clear,
    /// The pod is nominated to the node of the victims that the caller takes.
    ToVictims,
}

/// The nodes that were looked at, by their index in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first one.
    pub start: usize,
    /// The number of feasible nodes that were looked for.
    pub limit: usize,
    /// The number of nodes that were looked at; the feasible one after the last that was needed has no verdict.
    pub visited: usize,
    /// The first one of the next attempt.
    pub next: usize,
}

/// The scores of one plugin, for each feasible node.
#[derive(Clone, Debug)]
pub struct PluginScores {
    /// The plugin.
    pub plugin: Plugin,
    /// Its weight.
    pub weight: i64,
    /// The scores as it gave them.
    pub raw: Vec<i64>,
    /// The scores from 0 to 100, times the weight.
    pub weighted: Vec<i64>,
}

/// The scores of all plugins, for each feasible node.
#[derive(Clone, Debug)]
pub struct Scores {
    /// Those of each plugin that scored.
    pub plugins: Vec<PluginScores>,
    /// Their sum.
    pub total: Vec<i64>,
}

impl Scores {
    /// Adds those of the nodes of another part.
    fn extend(&mut self, more: Self) {
        for (all, more) in self.plugins.iter_mut().zip(more.plugins) {
            all.raw.extend(more.raw);
            all.weighted.extend(more.weighted);
        }
        self.total.extend(more.total);
    }
}

/// What an attempt found.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its end.
    pub outcome: Outcome,
    /// What becomes of the pod's nomination.
    pub nomination: Nomination,
    /// The verdict by which PreFilter rejected the pod; no node was looked at then.
    pub pre_filter: Option<Status>,
    /// The names that PreFilter left, also names of no node; `None` for all nodes.
    pub nodes: Option<BTreeSet<String>>,
    /// The verdicts of rejected nodes.
    pub rejected: Verdicts,
    /// The verdict that stands for all nodes that PreFilter excluded.
    pub absent: Option<Status>,
    /// The nodes that passed, in the order in which they were looked at.
    pub feasible: Vec<String>,
    /// Only the nominated node was looked at, and passed.
    pub is_nominated_only: bool,
    /// The nodes that were looked at.
    pub window: Window,
    /// Missing if fewer than two nodes passed.
    pub scores: Option<Scores>,
    /// The plugins that rejected the pod or a node for it, and may wake it; none for an attempt that failed.
    pub unschedulable_plugins: BTreeSet<Plugin>,
    /// Missing if it was not tried.
    pub preemption: Option<Preemption>,
}

impl Attempt {
    pub(super) fn new(start: usize) -> Self {
        Self {
            outcome: Outcome::Placed,
            nomination: Nomination::Keep,
            pre_filter: None,
            nodes: None,
            rejected: Verdicts::new(),
            absent: None,
            feasible: Vec::new(),
            is_nominated_only: false,
            window: Window {
                start,
                next: start,
                ..Window::default()
            },
            scores: None,
            unschedulable_plugins: BTreeSet::new(),
            preemption: None,
        }
    }

    /// Adds the conclusion, and what the parts found.
    pub(super) fn conclude(&mut self, conclusion: Conclusion, parts: impl Iterator<Item = Part>) {
        self.outcome = conclusion.outcome;
        self.nomination = conclusion.nomination;
        self.pre_filter = conclusion.pre_filter;
        self.unschedulable_plugins = conclusion.unschedulable_plugins;
        self.preemption = conclusion.preemption;
        for part in parts {
            self.add(part);
        }
    }

    /// A nominated node that passed is the only one, whatever other parts found.
    fn add(&mut self, mut part: Part) {
        if self.is_nominated_only {
            return;
        }
        if part.is_nominated_only {
            self.is_nominated_only = true;
            self.rejected.clear();
            self.feasible.clear();
        }
        self.nodes = self.nodes.take().or(part.names.take());
        self.absent = self.absent.take().or(part.absent.take());
        self.rejected.append(&mut part.rejected);
        self.feasible.append(&mut part.feasible);
        if part.start.is_some() {
            self.window = part.window;
        }
        if let Some(preemption) = &mut self.preemption {
            preemption.rejected.append(&mut part.preempt_rejected);
        }
        match (&mut self.scores, part.into_scores()) {
            (Some(all), Some(more)) => all.extend(more),
            (all, more) => *all = all.take().or(more),
        }
    }

    /// The nodes with the largest total, any of which is right; in the order in which they were looked at.
    pub fn best(&self) -> Vec<&str> {
        if self.outcome != Outcome::Placed {
            return Vec::new();
        }
        let names = self.feasible.iter().map(String::as_str);
        let Some(scores) = &self.scores else {
            return names.collect();
        };
        let largest = scores.total.iter().max();
        let all = names.zip(&scores.total);
        let best = all.filter(|(_, total)| Some(*total) == largest);
        best.map(|(name, _)| name).collect()
    }

    /// A uniform choice of the best nodes, from a random number.
    pub fn draw(&self, random: u64) -> Option<&str> {
        let best = self.best();
        let len = u128::try_from(best.len()).ok()?;
        let at = usize::try_from((u128::from(random) * len) >> 64).ok()?;
        best.get(at).copied()
    }

    /// The choice of kube-scheduler with one worker: the root of a binary heap over the feasible nodes, as they were
    /// looked at, in which only a larger child moves up, and the left one of two equals.
    pub fn first_of_heap(&self) -> Option<&str> {
        if self.outcome != Outcome::Placed {
            return None;
        }
        let totals = self.scores.as_ref().map(|scores| scores.total.as_slice());
        let at = heap_root(totals.unwrap_or(&[]));
        self.feasible.get(at).map(String::as_str)
    }
}

/// The index that comes to the root of the heap.
fn heap_root(totals: &[i64]) -> usize {
    let mut heap: Vec<usize> = (0..totals.len()).collect();
    for top in (0..totals.len() / 2).rev() {
        sift_down(totals, &mut heap, top);
    }
    heap.first().copied().unwrap_or(0)
}

fn sift_down(totals: &[i64], heap: &mut [usize], mut at: usize) {
    let total = |heap: &[usize], at: usize| totals[heap[at]];
    loop {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        if left >= heap.len() {
            return;
        }
        let is_right = right < heap.len() && total(heap, right) > total(heap, left);
        let child = if is_right { right } else { left };
        if total(heap, child) <= total(heap, at) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_left_of_equal_children_comes_to_the_root() {
        assert_eq!(heap_root(&[1, 1, 1]), 0);
        assert_eq!(heap_root(&[1, 2, 2]), 1);
        assert_eq!(heap_root(&[0, 1, 0, 2, 2]), 3);
        assert_eq!(heap_root(&[0, 2, 2, 0, 3, 3]), 4);
        assert_eq!(heap_root(&[]), 0);
    }

    #[test]
    fn each_of_the_best_nodes_is_drawn() {
        let mut attempt = Attempt::new(0);
        attempt.feasible = ["a", "b", "c"].map(str::to_owned).to_vec();
        attempt.scores = Some(Scores {
            plugins: Vec::new(),
            total: vec![7, 3, 7],
        });
        assert_eq!(attempt.best(), ["a", "c"]);
        assert_eq!(attempt.draw(0), Some("a"));
        assert_eq!(attempt.draw(u64::MAX / 2), Some("a"));
        assert_eq!(attempt.draw(u64::MAX), Some("c"));
    }
}
