//! The score of PodTopologySpread from counters: by the kind of a node, and for nodes with counted pods one by one.

use dormouse_scheduler_decide::Pod;

use crate::class::Class;
use crate::counters::{ByNode, Counters};
use crate::kinds::Kinds;
use crate::tree::at;

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

/// What the scores are made from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) class: &'a Class,
    pub(crate) pod: &'a Pod,
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
            class.needs_keys && terms.any(|one| !has_key(kinds, kind, one.term.key()))
        };
        let is_ignored: Vec<bool> = kinds.all().map(lacks_key).collect();
        let counted = kinds.all().filter(|kind| !is_ignored[at(*kind)]);
        let counted: Vec<u32> = counted.collect();
        let terms = class.spread.iter();
        Self {
            terms: terms
                .map(|one| {
                    let by_node = &source.counters.get(one.counter).by_node;
                    let is_by_node = one.term.is_by_node();
                    let domains = Domains {
                        source,
                        key: one.term.key(),
                        counted: &counted,
                        feasible,
                    };
                    let (by_kind, len) = if is_by_node {
                        (Vec::new(), domains.nodes_len())
                    } else {
                        domains.pods(one)
                    };
                    Term {
                        by_node: is_by_node.then_some(by_node),
                        by_kind,
                        weight: ((len + 2) as f64).ln(),
                        base: (one.term.max_skew() - 1) as f64,
                    }
                })
                .collect(),
            is_ignored,
            fewest: i64::MAX,
            most: 0,
            weight: source.weight,
        }
    }

    fn raw(&self, kinds: &Kinds, kind: u32, slot: Option<u32>) -> i64 {
        let mut score = 0.0;
        for term in &self.terms {
            let pods = match term.by_node {
                Some(_) if !kinds.has_hostname(kind) => None,
                Some(pods) => Some(slot.and_then(|slot| pods.get(&slot)).copied().unwrap_or(0)),
                None => term.by_kind[at(kind)],
            };
            if let Some(pods) = pods {
                score += f64::from(pods) * term.weight + term.base;
            }
        }
        truncated(f64::round(score))
    }

    /// Takes a feasible node into account; without a slot, one without pods that are counted by node.
    pub(crate) fn extend(&mut self, kinds: &Kinds, kind: u32, slot: Option<u32>) {
        if !self.is_ignored[at(kind)] {
            let raw = self.raw(kinds, kind, slot);
            self.fewest = self.fewest.min(raw);
            self.most = self.most.max(raw);
        }
    }

    /// The score of a node, with its weight.
    pub(crate) fn of(&self, kinds: &Kinds, kind: u32, slot: Option<u32>) -> f64 {
        let score = if self.is_ignored[at(kind)] {
            0
        } else if self.most == 0 {
            SCORE_MAX
        } else {
            SCORE_MAX * (self.most + self.fewest - self.raw(kinds, kind, slot)) / self.most
        };
        (score * self.weight) as f64
    }
}

fn has_key(kinds: &Kinds, kind: u32, key: &str) -> bool {
    if key == crate::class::HOSTNAME {
        kinds.has_hostname(kind)
    } else {
        kinds.label(kind, key).is_some()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sums of counted pods are far below the bound"
)]
fn truncated(value: f64) -> i64 {
    value as i64
}

/// The domains of a constraint.
struct Domains<'a> {
    source: Source<'a>,
    key: &'a str,
    /// Kinds that are not ignored.
    counted: &'a [u32],
    feasible: &'a [u64],
}

impl Domains<'_> {
    fn nodes_len(&self) -> u64 {
        self.counted
            .iter()
            .map(|kind| self.feasible[at(*kind)])
            .sum()
    }

    fn name(&self, kind: u32) -> &str {
        self.source.kinds.label(kind, self.key).unwrap_or_default()
    }

    /// The pods in the domain of each kind, and the number of domains with a feasible node.
    fn pods(&self, one: &crate::class::Spread) -> (Vec<Option<u32>>, u64) {
        let kinds = self.source.kinds;
        let counter = self.source.counters.get(one.counter);
        let mut names: Vec<(&str, u32)> = Vec::new();
        for &kind in self.counted {
            let name = self.name(kind);
            if self.feasible[at(kind)] > 0 && names.iter().all(|(known, _)| *known != name) {
                names.push((name, 0));
            }
        }
        for &kind in self.counted {
            let pods = counter.of_kind(kind);
            if pods == 0 || !one.term.includes(self.source.pod, kinds.specimen(kind)) {
                continue;
            }
            let name = self.name(kind);
            if let Some((_, sum)) = names.iter_mut().find(|(known, _)| *known == name) {
                *sum += pods;
            }
        }
        let of_kind = |kind: u32| {
            let name = kinds.label(kind, self.key)?;
            let known = names.iter().find(|(known, _)| *known == name);
            Some(known.map_or(0, |(_, pods)| *pods))
        };
        let len = u64::try_from(names.len()).unwrap_or(u64::MAX);
        (kinds.all().map(of_kind).collect(), len)
    }
}
