//! Classes: pods with equal rules in one profile, and what is known of nodes for them.

use dormouse_scheduler_decide::facts::{Census, Fixed, Reads, SpreadTerm, Weights};
use dormouse_scheduler_decide::{Plugin, Pod, Profile, Snapshot};

use crate::counters::Counters;
use crate::kinds::Kinds;
use crate::number::at;

/// A kind whose nodes cannot have the pod.
pub(crate) const REJECTED: f64 = f64::NEG_INFINITY;
/// The label of a node's own name.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// A soft spread constraint with its counter.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    term: SpreadTerm,
    pub(crate) counter: u32,
    /// The domain of each kind.
    pub(crate) domains: Vec<Domain>,
    /// The values of the key, by the domains' numbers.
    names: Vec<Option<String>>,
}

/// The domain of the nodes of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    /// Its number: kinds with the same value of the key, or without it, have the same.
    pub(crate) id: usize,
    /// The nodes have the key.
    pub(crate) has_key: bool,
    /// Pods on the nodes count.
    pub(crate) is_included: bool,
}

impl Spread {
    pub(crate) fn new(term: SpreadTerm, counter: u32) -> Self {
        Self {
            term,
            counter,
            domains: Vec::new(),
            names: Vec::new(),
        }
    }

    pub(crate) fn is_by_node(&self) -> bool {
        self.term.is_by_node()
    }

    pub(crate) fn max_skew(&self) -> i64 {
        self.term.max_skew()
    }

    /// The number of domains.
    pub(crate) fn domains_len(&self) -> usize {
        self.names.len()
    }

    fn add_kind(&mut self, pod: &Pod, kinds: &Kinds, kind: u32) {
        let node = kinds.specimen(kind);
        let key = self.term.key();
        let value = if self.is_by_node() {
            None
        } else {
            node.label(key)
        };
        // A node without the key is in the domain with an empty name.
        let name = value.filter(|value| !value.is_empty());
        let known = self.names.iter().position(|one| one.as_deref() == name);
        let id = known.unwrap_or_else(|| {
            self.names.push(name.map(str::to_owned));
            self.names.len() - 1
        });
        self.domains.push(Domain {
            id,
            has_key: node.label(key).is_some(),
            is_included: self.term.includes(pod, node),
        });
    }

    fn forget_kinds(&mut self) {
        self.domains.clear();
        self.names.clear();
    }
}

/// What is known of a class.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// Its decisions need more than the index holds.
    pub(crate) is_special: bool,
    /// Namespaces and workloads are as they were at this revision.
    pub(crate) selectors_revision: u64,
    pub(crate) spread: Vec<Spread>,
    pub(crate) needs_keys: bool,
    /// The counters of pods that keep the class away, or that it keeps away from.
    pub(crate) repelled_by: Vec<u32>,
    /// Counters up to here were asked whether they repel the class.
    seen_len: usize,
    /// Pods on nodes can have terms that score nodes for the class.
    attracted_by: Vec<u32>,
    fixed: Vec<Option<Fixed>>,
    /// The number of all nodes when the scores of images were known; missing where no node has images.
    images_among: Option<usize>,
    /// The sum of the scores that need no normalization, by kind.
    pub(crate) bonus: Vec<f64>,
    /// The scores of all kinds that accept the pod are the same once they are normalized.
    pub(crate) is_even: bool,
}

/// What a class is made from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) weights: &'a Weights,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) pod: &'a Pod,
}

impl Source<'_> {
    /// What is read of nodes for the class, with its spread constraints.
    pub(crate) fn reads(&self) -> (Reads, Vec<SpreadTerm>) {
        let mut reads = self.profile.reads(self.pod);
        let spreads = self.profile.filters(Plugin::PodTopologySpread) || self.weights.spread > 0;
        let terms = match self.profile.spread_terms(self.snapshot, self.pod) {
            _ if !spreads => Vec::new(),
            Some(terms) => terms,
            None => {
                reads.is_special = true;
                Vec::new()
            }
        };
        let own = terms.iter().filter(|term| !term.is_by_node());
        reads.keys.extend(own.map(|term| term.key().to_owned()));
        (reads, terms)
    }

    /// The sets of pods that keep the class away.
    pub(crate) fn repelling(&self) -> Vec<Census> {
        if !self.profile.filters(Plugin::InterPodAffinity) {
            return Vec::new();
        }
        Census::of_incoming(self.profile, self.snapshot, self.pod)
    }
}

impl Class {
    pub(crate) fn new(is_special: bool, source: Source<'_>) -> Self {
        Self {
            is_special,
            selectors_revision: source.snapshot.selectors_revision(),
            spread: Vec::new(),
            needs_keys: source.profile.spread_needs_keys(source.pod),
            repelled_by: Vec::new(),
            seen_len: 0,
            attracted_by: Vec::new(),
            fixed: Vec::new(),
            images_among: None,
            bonus: Vec::new(),
            is_even: true,
        }
    }

    /// Looks at counters and kinds that are new.
    pub(crate) fn catch_up(&mut self, source: Source<'_>, counters: &Counters, kinds: &Kinds) {
        for (id, counter) in counters.from(self.seen_len) {
            let (census, pod) = (&counter.census, source.pod);
            if source.profile.filters(Plugin::InterPodAffinity)
                && census.opposes(source.snapshot, pod).is_some()
            {
                self.repelled_by.push(id);
            }
            if census.attracts(source.snapshot, pod) {
                self.attracted_by.push(id);
            }
        }
        self.seen_len = counters.len();
        let nodes_len = source.snapshot.nodes_len();
        if self.images_among.is_some_and(|among| among != nodes_len) {
            self.forget_kinds();
        }
        if self.fixed.len() == kinds.len() {
            return;
        }
        for kind in kinds.all().skip(self.fixed.len()) {
            let node = kinds.specimen(kind);
            if node.has_images() {
                self.images_among = Some(nodes_len);
            }
            let fixed = source.profile.fixed(source.snapshot, source.pod, node);
            self.fixed.push(fixed);
            for spread in &mut self.spread {
                spread.add_kind(source.pod, kinds, kind);
            }
            let images = |fixed: Fixed| (fixed.images * source.weights.images) as f64;
            self.bonus.push(fixed.map_or(REJECTED, images));
        }
        let mut accepting = self.fixed.iter().flatten();
        let first = accepting.next();
        self.is_even = accepting.all(|other| {
            first.is_some_and(|one| (one.taints, one.affinity) == (other.taints, other.affinity))
        });
    }

    /// Discards what was computed by kind: the kinds of all nodes are recomputed.
    pub(crate) fn forget_kinds(&mut self) {
        self.fixed.clear();
        self.spread.iter_mut().for_each(Spread::forget_kinds);
        self.bonus.clear();
        self.images_among = None;
        self.is_even = true;
    }

    /// Whether pods on nodes have terms that score nodes for the class.
    pub(crate) fn is_attracted(&self, counters: &Counters) -> bool {
        let mut all = self.attracted_by.iter();
        all.any(|id| !counters.get(*id).by_node.is_empty())
    }

    /// The scores of TaintToleration and NodeAffinity by kind, added to the others; normalized over the kinds with a
    /// feasible node.
    pub(crate) fn normalized(
        &self,
        weights: &Weights,
        has_feasible: impl Fn(usize) -> bool,
    ) -> Vec<f64> {
        let feasible = self.fixed.iter().enumerate();
        let feasible = feasible.filter_map(|(kind, fixed)| fixed.filter(|_| has_feasible(kind)));
        let most = feasible.fold(Fixed::default(), |most, fixed| Fixed {
            taints: most.taints.max(fixed.taints),
            affinity: most.affinity.max(fixed.affinity),
            images: 0,
        });
        let total = |(kind, bonus): (usize, &f64)| {
            let Some(fixed) = self.fixed[kind] else {
                return REJECTED;
            };
            let taints = 100 - (100 * fixed.taints).checked_div(most.taints).unwrap_or(0);
            let affinity = (100 * fixed.affinity).checked_div(most.affinity);
            let affinity = affinity.unwrap_or(fixed.affinity);
            bonus + (taints * weights.taints + affinity * weights.affinity) as f64
        };
        self.bonus.iter().enumerate().map(total).collect()
    }

    /// Whether the scores of a node depend on its kind and its amounts alone, whatever pods there are.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_even && !self.is_counted() && self.attracted_by.is_empty()
    }

    /// Whether kinds have other scores for the class than by their traits.
    pub(crate) fn is_counted(&self) -> bool {
        !self.spread.is_empty() || !self.repelled_by.is_empty()
    }

    /// Rejects kinds by the domains in which pods keep the class away; the counters for which domains are single nodes.
    pub(crate) fn reject(&self, bonus: &mut [f64], counters: &Counters, kinds: &Kinds) -> Vec<u32> {
        let mut by_node = Vec::new();
        for &id in &self.repelled_by {
            let counter = counters.get(id);
            let Some(key) = counter.census.key().filter(|_| !counter.by_node.is_empty()) else {
                continue;
            };
            if key == HOSTNAME {
                by_node.push(id);
                continue;
            }
            let occupied = kinds.all().filter(|kind| counter.of_kind(*kind) > 0);
            let values: Vec<_> = occupied.filter_map(|kind| kinds.label(kind, key)).collect();
            for kind in kinds.all() {
                if kinds
                    .label(kind, key)
                    .is_some_and(|value| values.contains(&value))
                {
                    bonus[at(kind)] = REJECTED;
                }
            }
        }
        by_node
    }
}
