//! The search for the best nodes: cell by cell, where the best bound is first and what cannot be as good is left out, or
//! node by node within a part of a segment. Ties are drawn uniformly while they are found.

mod draw;

use std::borrow::Cow;

use dormouse_scheduler_decide::Pod;
use dormouse_scheduler_decide::Snapshot;
use dormouse_scheduler_decide::{Profile, facts::NodeView};

use crate::by_node::{ByNode, Level};
use crate::class::REJECTED;
use crate::demand::{Demand, Range};
use crate::group::Entry;
use crate::kinds::Kinds;
use crate::row::Row;
use crate::segment::{Place, Segment};
use crate::spread::{Host, Scores};
use crate::tree::{Body, ROOT, at};

/// What a search looks at, and how nodes are judged.
pub(crate) struct Lens<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) profile: &'a Profile,
    pub(crate) pod: &'a Pod,
    pub(crate) demand: Demand,
    pub(crate) kinds: &'a Kinds,
    pub(crate) rows: &'a [Row],
    pub(crate) segments: &'a [Segment],
    /// The scores that a node has by its kind, but for the spread of pods.
    pub(crate) bonus: Cow<'a, [f64]>,
    /// Nodes that pods keep the pod away from.
    pub(crate) repelling: Vec<&'a ByNode>,
    /// Nodes with pods that count for the spread by node.
    pub(crate) spreading: Vec<&'a ByNode>,
    pub(crate) spread: Option<Scores<'a>>,
}

/// A set of nodes that are equally good.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Node(u32),
    /// A group of a segment.
    Group(usize, u32),
    /// A cell of a family of a segment.
    Cell(usize, usize, u32),
}

/// The best nodes so far.
pub(crate) struct Search<'a> {
    lens: &'a Lens<'a>,
    apart_len_max: u64,
    best: f64,
    ties: Vec<(Choice, u64)>,
    pub(crate) looked_at: u64,
    /// Sets of no more nodes than that are looked into, as all of their nodes can be apart.
    doubtful_len: u64,
    /// No node has a larger score by its amounts.
    most_of_amounts: f64,
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl Lens<'_> {
    /// Whether a node is judged by itself, and not by its kind and amounts alone.
    pub(crate) fn is_apart(&self, slot: u32) -> bool {
        let mut spreading = self.spreading.iter();
        spreading.any(|pods| pods.contains(slot))
            || self.is_repelled(slot, self.rows[at(slot)].kind)
    }

    /// No more nodes than that are judged by themselves.
    pub(crate) fn apart_len_max(&self) -> u64 {
        let all = self.repelling.iter().chain(&self.spreading);
        all.map(|pods| count(pods.len())).sum()
    }

    /// The nodes that are judged by themselves, if they are those of one constraint.
    pub(crate) fn only_spread(&self) -> Option<&ByNode> {
        match self.spreading.as_slice() {
            [one] if self.repelling.is_empty() => Some(one),
            _ => None,
        }
    }

    /// The nodes that are judged by themselves, but for those that pods keep the pod away from.
    pub(crate) fn spread_apart(&self) -> impl Iterator<Item = u32> {
        let all = self.spreading.iter().enumerate();
        all.flat_map(move |(index, pods)| {
            let before = &self.spreading[..index];
            let slots = pods.slots();
            slots.filter(|slot| before.iter().all(|pods| !pods.contains(*slot)))
        })
    }

    /// The nodes that pods keep the pod away from, and that are not in the spread.
    pub(crate) fn repelled(&self) -> impl Iterator<Item = u32> {
        let all = self.repelling.iter().enumerate();
        all.flat_map(move |(index, pods)| {
            let before = &self.repelling[..index];
            let slots = pods.slots();
            slots.filter(move |slot| {
                let mut others = before.iter().chain(&self.spreading);
                others.all(|pods| !pods.contains(*slot))
                    && self.kinds.has_hostname(self.rows[at(*slot)].kind)
            })
        })
    }

    /// Whether pods keep the pod away from a node.
    pub(crate) fn is_repelled(&self, slot: u32, kind: u32) -> bool {
        let mut all = self.repelling.iter();
        self.kinds.has_hostname(kind) && all.any(|pods| pods.contains(slot))
    }

    /// Whether a node can have the pod.
    pub(crate) fn is_feasible(&self, slot: u32) -> bool {
        let row = &self.rows[at(slot)];
        let fits = match row.place {
            Place::Nowhere => false,
            Place::Odd(_) => self.resources(slot).is_some(),
            Place::Group(..) => self.demand.fits(&row.state),
        };
        fits && self.bonus[at(row.kind)] != REJECTED && !self.is_repelled(slot, row.kind)
    }

    fn resources(&self, slot: u32) -> Option<(i64, i64)> {
        let node: NodeView<'_> = self.snapshot.view(slot)?;
        self.profile.resources(self.snapshot, self.pod, node)
    }

    /// The scores of a kind, for nodes that are not apart.
    fn of_kind(&self, kind: u32) -> f64 {
        let spread = self.spread.as_ref();
        self.bonus[at(kind)] + spread.map_or(0.0, |spread| spread.of(self.kinds, kind, Host::Empty))
    }

    /// The scores of the nodes of a level, but for those of their amounts.
    fn of_level(&self, level: Level) -> f64 {
        let host = Host::With(level.pods);
        let spread = self.spread.as_ref();
        let spread = spread.map_or(0.0, |spread| spread.of(self.kinds, level.kind, host));
        self.bonus[at(level.kind)] + spread
    }

    /// The total of a feasible node.
    fn total(&self, slot: u32) -> Option<f64> {
        let row = &self.rows[at(slot)];
        let spread = self.spread.as_ref();
        let spread = spread.map_or(0.0, |spread| {
            spread.of(self.kinds, row.kind, Host::Slot(slot))
        });
        let of_resources = match row.place {
            Place::Odd(_) => {
                let (fit, balanced) = self.resources(slot)?;
                self.demand.weigh(fit, balanced)
            }
            _ => self.demand.score(&row.state, row.evenness),
        };
        Some(self.bonus[at(row.kind)] + spread + of_resources)
    }
}

impl<'a> Search<'a> {
    pub(crate) fn new(lens: &'a Lens<'a>) -> Self {
        Self {
            lens,
            apart_len_max: lens.apart_len_max(),
            best: REJECTED,
            ties: Vec::new(),
            looked_at: 0,
            doubtful_len: 0,
            most_of_amounts: REJECTED,
        }
    }

    /// Whether one of the best nodes is certain to be as good as it was taken for: no set consists of nodes apart alone.
    pub(crate) fn is_certain(&self) -> bool {
        let all: u64 = self.ties.iter().map(|(_, len)| len).sum();
        all > self.apart_len_max || self.ties.is_empty() || self.as_good().next().is_some()
    }

    /// Begins again; each set is looked into until a node is found that is not apart.
    pub(crate) fn begin_again(&mut self) {
        self.doubtful_len = self.apart_len_max;
        self.best = REJECTED;
        self.ties.clear();
    }

    fn offer(&mut self, total: f64, len: u64, choice: Choice) {
        if total < self.best {
            return;
        }
        if total > self.best {
            self.best = total;
            self.ties.clear();
        }
        self.ties.push((choice, len));
    }

    /// Looks at one feasible node.
    pub(crate) fn node(&mut self, slot: u32) {
        self.looked_at += 1;
        if let Some(total) = self.lens.total(slot) {
            self.offer(total, 1, Choice::Node(slot));
        }
    }

    /// Looks at one node.
    fn any_node(&mut self, slot: u32) {
        if self.lens.is_feasible(slot) {
            self.node(slot);
        }
    }

    /// Looks at all nodes of a segment but those apart.
    pub(crate) fn segment(&mut self, index: usize) {
        let segment = &self.lens.segments[index];
        let families = segment.families.iter().enumerate();
        let ranked = families.filter_map(|(family, one)| {
            let bonus = self.lens.of_kind(one.kind);
            let bounds = one.tree.cell(ROOT).bounds.as_ref()?;
            let range = self.lens.demand.range(bounds)?;
            let within = In {
                segment: index,
                family,
                bonus,
            };
            (bonus != REJECTED).then_some((within, range))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable_by(|a, b| (b.1.most + b.0.bonus).total_cmp(&(a.1.most + a.0.bonus)));
        for (within, range) in ranked {
            self.most_of_amounts = self.most_of_amounts.max(range.most);
            self.cell(within, ROOT, range);
        }
        if !segment.odd.is_empty() {
            self.most_of_amounts = self.lens.demand.weigh(100, 100);
        }
        for &slot in &segment.odd {
            if self.apart_len_max == 0 || !self.lens.is_apart(slot) {
                self.any_node(slot);
            }
        }
    }

    fn cell(&mut self, within: In, id: u32, range: Range) {
        let segment = &self.lens.segments[within.segment];
        let tree = &segment.families[within.family].tree;
        let cell = tree.cell(id);
        if range.most + within.bonus < self.best {
            return;
        }
        let len = u64::from(cell.nodes_len);
        if range.fits_all && range.least >= range.most && len > self.doubtful_len {
            let choice = Choice::Cell(within.segment, within.family, id);
            return self.offer(range.most + within.bonus, len, choice);
        }
        match &cell.body {
            Body::Groups(list) => {
                for entry in list {
                    self.group(within, entry);
                }
            }
            Body::Parts(parts) => {
                let bounded = tree.parts(*parts).filter_map(|part| {
                    let range = self.lens.demand.range(tree.cell(part).bounds.as_ref()?)?;
                    Some((range, part))
                });
                let mut ranked = [(range, 0_u32); 16];
                let mut len = 0;
                for one in bounded {
                    ranked[len] = one;
                    len += 1;
                }
                ranked[..len].sort_unstable_by(|a, b| b.0.most.total_cmp(&a.0.most));
                for &(range, part) in &ranked[..len] {
                    self.cell(within, part, range);
                }
            }
        }
    }

    fn group(&mut self, within: In, entry: &Entry) {
        self.looked_at += 1;
        if !self.lens.demand.fits(&entry.state) {
            return;
        }
        let total = self.lens.demand.score(&entry.state, entry.evenness) + within.bonus;
        if total < self.best {
            return;
        }
        let len = u64::from(entry.nodes_len);
        let group = &self.lens.segments[within.segment].groups[at(entry.group)];
        let mut slots = group.members.as_slice().iter();
        if len > self.doubtful_len || slots.any(|slot| !self.lens.is_apart(*slot)) {
            let choice = Choice::Group(within.segment, entry.group);
            self.offer(total, len, choice);
        }
    }

    /// Looks at the nodes apart, one by one.
    pub(crate) fn apart_nodes(&mut self) {
        let lens = self.lens;
        let Some(by_node) = lens.only_spread() else {
            return lens.spread_apart().for_each(|slot| self.any_node(slot));
        };
        for (level, slots) in by_node.levels() {
            if lens.of_level(level) + self.most_of_amounts >= self.best {
                for slot in slots {
                    self.any_node(*slot);
                }
            }
        }
    }
}

/// A family within a segment, and the scores of its kind.
#[derive(Clone, Copy)]
struct In {
    segment: usize,
    family: usize,
    bonus: f64,
}
