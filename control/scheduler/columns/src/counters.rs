//! Counted pods: for each set that a plugin counts, the pods on each node and on the nodes of each kind.

mod forget;

use std::sync::Arc;

use dormouse_scheduler_decide::facts::{Census, NodeView};
use dormouse_scheduler_decide::{Pod, Rules, Snapshot};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::by_node::ByNode;
use crate::number::{at, count};

pub(crate) use forget::Gone;

/// The pods of a set.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub(crate) census: Census,
    pub(crate) by_node: ByNode,
    by_kind: Vec<u32>,
}

/// Pods with the same rules.
#[derive(Clone, Debug)]
struct Known {
    example: Pod,
    /// The counters that count them, of those that there were when it was last looked.
    counters: Vec<u32>,
    seen_len: usize,
    /// The number of such pods on nodes.
    pods_len: u32,
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    all: Vec<Counter>,
    ids: HashMap<Census, u32, FixedState>,
    /// By number; numbers of rules that were forgotten are used again.
    known: Vec<Option<Known>>,
    free: Vec<u32>,
    /// How many rules and counters were left when some were forgotten.
    kept: (usize, usize),
    by_address: HashMap<usize, u32, FixedState>,
    by_rules: HashMap<Arc<Rules>, u32, FixedState>,
    /// The address that was last looked for, and the number of its rules.
    last: (usize, u32),
}

fn address(rules: &Arc<Rules>) -> usize {
    Arc::as_ptr(rules).addr()
}

impl Counter {
    pub(crate) fn of_kind(&self, kind: u32) -> u32 {
        self.by_kind.get(at(kind)).copied().unwrap_or(0)
    }

    fn count(&mut self, slot: u32, kind: u32, comes: bool) {
        if self.by_kind.len() <= at(kind) {
            self.by_kind.resize(at(kind) + 1, 0);
        }
        let of_kind = &mut self.by_kind[at(kind)];
        *of_kind = if comes { *of_kind + 1 } else { *of_kind - 1 };
        self.by_node.count(slot, kind, comes);
    }

    fn move_node(&mut self, slot: u32, from: u32, to: u32) {
        if !self.by_node.contains(slot) {
            return;
        }
        let pods = self.by_node.move_node(slot, from, to);
        let most = at(from.max(to));
        if self.by_kind.len() <= most {
            self.by_kind.resize(most + 1, 0);
        }
        self.by_kind[at(from)] -= pods;
        self.by_kind[at(to)] += pods;
    }
}

impl Counters {
    pub(crate) fn get(&self, id: u32) -> &Counter {
        &self.all[at(id)]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// All counters from one on.
    pub(crate) fn from(&self, first: usize) -> impl Iterator<Item = (u32, &Counter)> {
        let all = self.all.iter().enumerate().skip(first);
        all.map(|(index, counter)| (count(index), counter))
    }

    /// The number of the pod's rules, by which equal rules are known.
    pub(crate) fn rules(&mut self, pod: &Pod) -> u32 {
        let rules = pod.rules();
        let address = address(rules);
        if self.last.0 == address {
            return self.last.1;
        }
        if let Some(known) = self.by_address.get(&address) {
            self.last = (address, *known);
            return *known;
        }
        if let Some(known) = self.by_rules.get(rules) {
            return *known;
        }
        let new = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            count(self.known.len() - 1)
        });
        self.by_address.insert(address, new);
        self.by_rules.insert(rules.clone(), new);
        self.known[at(new)] = Some(Known {
            example: pod.clone(),
            counters: Vec::new(),
            seen_len: 0,
            pods_len: 0,
        });
        for census in Census::of_existing(pod) {
            self.add(census);
        }
        new
    }

    /// The memory of the rules that are known by a number.
    pub(crate) fn shared(&self, rules: u32) -> Option<&Arc<Rules>> {
        let known = self.known.get(at(rules))?.as_ref()?;
        Some(known.example.rules())
    }

    fn add(&mut self, census: Census) -> u32 {
        let new = count(self.all.len());
        let known = *self.ids.entry(census.clone()).or_insert(new);
        if known == new {
            self.all.push(Counter {
                census,
                by_node: ByNode::default(),
                by_kind: Vec::new(),
            });
        }
        known
    }

    /// The counter of a set; pods that are there are counted if it is new.
    pub(crate) fn counter(
        &mut self,
        census: Census,
        snapshot: &Snapshot,
        kind: impl Fn(u32) -> u32,
    ) -> u32 {
        let before = self.all.len();
        let new = self.add(census);
        if self.all.len() > before && self.is_on_nodes(new) {
            for &slot in snapshot.slot_order() {
                let pods = snapshot.view(slot).map(NodeView::pods);
                for pod in pods.into_iter().flatten() {
                    let counter = &mut self.all[at(new)];
                    if counter.census.counts(pod) && !is_omitted(counter, pod) {
                        counter.count(slot, kind(slot), true);
                    }
                }
            }
        }
        new
    }

    /// Whether pods of a new set are on nodes.
    fn is_on_nodes(&self, counter: u32) -> bool {
        let census = &self.get(counter).census;
        let known = self.known.iter().flatten();
        let mut known = known.filter(|known| known.pods_len > 0);
        known.any(|known| census.counts(&known.example))
    }

    /// Counts a pod that came to a node or left it.
    pub(crate) fn count(&mut self, pod: &Pod, slot: u32, kind: u32, comes: bool) {
        let rules = at(self.rules(pod));
        let Some(known) = &mut self.known[rules] else {
            return;
        };
        if comes {
            known.pods_len += 1;
        } else {
            known.pods_len -= 1;
        }
        while known.seen_len < self.all.len() {
            if self.all[known.seen_len].census.counts(&known.example) {
                known.counters.push(count(known.seen_len));
            }
            known.seen_len += 1;
        }
        for counter in &known.counters {
            let counter = &mut self.all[at(*counter)];
            if !is_omitted(counter, pod) {
                counter.count(slot, kind, comes);
            }
        }
    }

    /// A node is of another kind now.
    pub(crate) fn move_node(&mut self, slot: u32, from: u32, to: u32) {
        for counter in self.all.iter_mut().filter(|_| from != to) {
            counter.move_node(slot, from, to);
        }
    }

    /// Recomputes the sums by kind, after the kinds of all nodes were recomputed.
    pub(crate) fn recount_kinds(&mut self, kind: impl Fn(u32) -> u32) {
        for counter in &mut self.all {
            counter.by_kind.clear();
            counter.by_node.recount_kinds(&kind);
            for (level, slots) in counter.by_node.levels() {
                let kind = at(level.kind);
                if counter.by_kind.len() <= kind {
                    counter.by_kind.resize(kind + 1, 0);
                }
                counter.by_kind[kind] += level.pods * count(slots.len());
            }
        }
    }
}

fn is_omitted(counter: &Counter, pod: &Pod) -> bool {
    pod.is_terminating() && counter.census.omits_terminating()
}
