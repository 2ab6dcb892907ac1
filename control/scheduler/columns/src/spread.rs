//! The score of PodTopologySpread from counters: by the kind of a node, and for nodes with counted pods one by one.

use crate::by_node::ByNode;
use crate::class::{Class, Spread};
use crate::counters::{Counter, Counters};
use crate::kinds::Kinds;
use crate::number::at;

/// The largest score of a plugin.
const SCORE_MAX: i64 = 100;

/// A constraint of the incoming pod.
struct Term<'a> {
    /// The pods on each node, if domains are single nodes.
    by_node: Option<&'a ByNode>,
    /// The pods in the domain of each kind; `None` for one without the key.
    by_kind: Vec<Option<u32>>,
    weight: f64,
    /// What each domain has above 0.
    base: f64,
}

/// The scores of a decision.
pub(crate) struct Scores<'a> {
    terms: Vec<Term<'a>>,
    /// Kinds that lack a key.
    is_ignored: Vec<bool>,
    fewest: i64,
    most: i64,
    weight: i64,
}

/// A node, as far as its counted pods go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// One without pods that are counted by node.
    Empty,
    /// The node of a slot.
    Slot(u32),
    /// One with a number of pods, where one constraint counts by node.
    With(u32),
}

impl Host {
    fn pods(self, by_node: &ByNode) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Slot(slot) => by_node.pods(slot),
            Self::With(pods) => pods,
        }
    }
}

/// What the scores are made from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) class: &'a Class,
    pub(crate) kinds: &'a Kinds,
    pub(crate) counters: &'a Counters,
    pub(crate) weight: i64,
}

impl<'a> Scores<'a> {
    /// The scores, once it is known how many nodes of each kind are feasible.
    pub(crate) fn new(source: Source<'a>, feasible: &[u64]) -> Self {
        let (class, kinds) = (source.class, source.kinds);
        let lacks_key = |kind: u32| {
            let mut terms = class.spread.iter();
            class.needs_keys && terms.any(|one| !one.domains[at(kind)].has_key)
        };
        let is_ignored: Vec<bool> = kinds.all().map(lacks_key).collect();
        let feasible = feasible.iter().zip(&is_ignored);
        let feasible: Vec<u64> = feasible
            .map(|(len, is_ignored)| if *is_ignored { 0 } else { *len })
            .collect();
        let term = |one: &Spread| {
            let counter = source.counters.get(one.counter);
            let is_by_node = one.is_by_node();
            let (by_kind, len) = if is_by_node {
                (Vec::new(), feasible.iter().sum())
            } else {
                domains(one, counter, &feasible, &is_ignored)
            };
            Term {
                by_node: is_by_node.then_some(&counter.by_node),
                by_kind,
                weight: ((len + 2) as f64).ln(),
                base: (one.max_skew() - 1) as f64,
            }
        };
        Self {
            terms: class.spread.iter().map(term).collect(),
            is_ignored,
            fewest: i64::MAX,
            most: 0,
            weight: source.weight,
        }
    }

    fn raw(&self, kinds: &Kinds, kind: u32, host: Host) -> i64 {
        let mut score = 0.0;
        for term in &self.terms {
            let pods = match term.by_node {
                Some(_) if !kinds.has_hostname(kind) => None,
                Some(by_node) => Some(host.pods(by_node)),
                None => term.by_kind[at(kind)],
            };
            if let Some(pods) = pods {
                score += f64::from(pods) * term.weight + term.base;
            }
        }
        truncated(f64::round(score))
    }

    /// Takes a feasible node into account.
    pub(crate) fn extend(&mut self, kinds: &Kinds, kind: u32, host: Host) {
        if !self.is_ignored[at(kind)] {
            let raw = self.raw(kinds, kind, host);
            self.fewest = self.fewest.min(raw);
            self.most = self.most.max(raw);
        }
    }

    /// The score of a node, with its weight.
    pub(crate) fn of(&self, kinds: &Kinds, kind: u32, host: Host) -> f64 {
        let score = if self.is_ignored[at(kind)] {
            0
        } else if self.most == 0 {
            SCORE_MAX
        } else {
            SCORE_MAX * (self.most + self.fewest - self.raw(kinds, kind, host)) / self.most
        };
        (score * self.weight) as f64
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sums of counted pods are far below the bound"
)]
fn truncated(value: f64) -> i64 {
    value as i64
}

/// The pods in the domain of each kind, and the number of domains with a feasible node: only these count pods.
fn domains(
    one: &Spread,
    counter: &Counter,
    feasible: &[u64],
    is_ignored: &[bool],
) -> (Vec<Option<u32>>, u64) {
    let mut pods: Vec<Option<u32>> = vec![None; one.domains_len()];
    let mut len = 0;
    for (domain, nodes_len) in one.domains.iter().zip(feasible) {
        if *nodes_len > 0 && pods[domain.id].is_none() {
            pods[domain.id] = Some(0);
            len += 1;
        }
    }
    let kinds = one.domains.iter().zip(is_ignored).zip(0..);
    for ((domain, is_ignored), kind) in kinds {
        if let Some(sum) = &mut pods[domain.id]
            && domain.is_included
            && !is_ignored
        {
            *sum += counter.of_kind(kind);
        }
    }
    let of = |domain: &crate::class::Domain| domain.has_key.then(|| pods[domain.id].unwrap_or(0));
    (one.domains.iter().map(of).collect(), len)
}
