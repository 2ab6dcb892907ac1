//! The search for the best nodes: cell by cell, where the best bound is first and what cannot be as good is left out, or
//! node by node within a part of a segment. Ties are drawn uniformly while they are found.

use std::borrow::Cow;

use dormouse_scheduler_decide::Pod;
use dormouse_scheduler_decide::Snapshot;
use dormouse_scheduler_decide::{Profile, facts::NodeView};
use fastrand::Rng;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::class::REJECTED;
use crate::counters::ByNode;
use crate::demand::Demand;
use crate::kinds::Kinds;
use crate::row::Row;
use crate::segment::{Place, Segment};
use crate::spread::Scores;
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
    /// Nodes of groups that are judged one by one.
    apart: HashMap<(u32, u32), u32, FixedState>,
    best: f64,
    ties: u64,
    choice: Option<Choice>,
    pub(crate) looked_at: u64,
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl Lens<'_> {
    /// Whether a node is judged by itself, and not by its kind and amounts alone.
    pub(crate) fn is_apart(&self, slot: u32) -> bool {
        let mut all = self.repelling.iter().chain(&self.spreading);
        all.any(|pods| pods.contains_key(&slot))
    }

    /// The nodes that are judged by themselves.
    pub(crate) fn apart(&self) -> impl Iterator<Item = u32> {
        let all = self.repelling.iter().chain(&self.spreading);
        let all = all.enumerate();
        all.flat_map(move |(index, pods)| {
            let before = self.repelling.iter().chain(&self.spreading).take(index);
            let slots = pods.keys().copied();
            slots.filter(move |slot| before.clone().all(|pods| !pods.contains_key(slot)))
        })
    }

    /// Whether pods keep the pod away from a node.
    pub(crate) fn is_repelled(&self, slot: u32, kind: u32) -> bool {
        let mut all = self.repelling.iter();
        self.kinds.has_hostname(kind) && all.any(|pods| pods.contains_key(&slot))
    }

    /// Whether a node can have the pod.
    pub(crate) fn is_feasible(&self, slot: u32) -> bool {
        let row = &self.rows[at(slot)];
        if self.bonus[at(row.kind)] == REJECTED || self.is_repelled(slot, row.kind) {
            return false;
        }
        match row.place {
            Place::Nowhere => false,
            Place::Odd(_) => self.resources(slot).is_some(),
            Place::Group(..) => self.demand.fits(&row.state),
        }
    }

    fn resources(&self, slot: u32) -> Option<(i64, i64)> {
        let node: NodeView<'_> = self.snapshot.view(slot)?;
        self.profile.resources(self.snapshot, self.pod, node)
    }

    /// The scores of a kind, for nodes that are not apart.
    fn of_kind(&self, kind: u32) -> f64 {
        let spread = self.spread.as_ref();
        self.bonus[at(kind)] + spread.map_or(0.0, |spread| spread.of(self.kinds, kind, None))
    }

    /// The total of a feasible node.
    fn total(&self, slot: u32) -> Option<f64> {
        let row = &self.rows[at(slot)];
        let spread = self.spread.as_ref();
        let spread = spread.map_or(0.0, |spread| spread.of(self.kinds, row.kind, Some(slot)));
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
        let mut apart: HashMap<_, u32, _> = HashMap::default();
        for slot in lens.apart() {
            let row = &lens.rows[at(slot)];
            if let Place::Group(group, _) = row.place {
                *apart.entry((row.segment, group)).or_default() += 1;
            }
        }
        Self {
            lens,
            apart,
            best: REJECTED,
            ties: 0,
            choice: None,
            looked_at: 0,
        }
    }

    fn offer(&mut self, rng: &mut Rng, total: f64, len: u64, choice: Choice) {
        if total < self.best || len == 0 {
            return;
        }
        if total > self.best {
            self.best = total;
            self.ties = 0;
        }
        self.ties += len;
        if self.ties == len || rng.u64(0..self.ties) < len {
            self.choice = Some(choice);
        }
    }

    /// Looks at one node.
    pub(crate) fn node(&mut self, rng: &mut Rng, slot: u32) {
        self.looked_at += 1;
        if self.lens.is_feasible(slot)
            && let Some(total) = self.lens.total(slot)
        {
            self.offer(rng, total, 1, Choice::Node(slot));
        }
    }

    /// Looks at all nodes of a segment but those apart.
    pub(crate) fn segment(&mut self, rng: &mut Rng, index: usize) {
        let segment = &self.lens.segments[index];
        let families = segment.families.iter().enumerate();
        let ranked = families.filter_map(|(family, one)| {
            let bonus = self.lens.of_kind(one.kind);
            let bounds = one.tree.cell(ROOT).bounds.as_ref()?;
            let range = self.lens.demand.range(bounds)?;
            (bonus != REJECTED).then_some((range.most + bonus, family, bonus))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        for (_, family, bonus) in ranked {
            let at = In {
                segment: index,
                family,
                bonus,
            };
            self.cell(rng, at, ROOT);
        }
        for &slot in &segment.odd {
            if self.apart.is_empty() || !self.lens.is_apart(slot) {
                self.node(rng, slot);
            }
        }
    }

    fn cell(&mut self, rng: &mut Rng, within: In, id: u32) {
        let segment = &self.lens.segments[within.segment];
        let tree = &segment.families[within.family].tree;
        let cell = tree.cell(id);
        let Some(bounds) = &cell.bounds else {
            return;
        };
        let Some(range) = self.lens.demand.range(bounds) else {
            return;
        };
        if range.most + within.bonus < self.best {
            return;
        }
        if range.fits_all && range.least >= range.most && self.apart.is_empty() {
            let len = u64::from(cell.nodes_len);
            let choice = Choice::Cell(within.segment, within.family, id);
            return self.offer(rng, range.most + within.bonus, len, choice);
        }
        match &cell.body {
            Body::Groups(list) => {
                for &group in list {
                    self.group(rng, within, group);
                }
            }
            Body::Parts(parts) => {
                let bounded = tree.parts(parts).filter_map(|part| {
                    let range = self.lens.demand.range(tree.cell(part).bounds.as_ref()?)?;
                    Some((range.most, part))
                });
                let mut ranked = [(0.0, 0_u32); 16];
                let mut len = 0;
                for one in bounded {
                    ranked[len] = one;
                    len += 1;
                }
                ranked[..len].sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
                for &(most, part) in &ranked[..len] {
                    if most + within.bonus >= self.best {
                        self.cell(rng, within, part);
                    }
                }
            }
        }
    }

    fn group(&mut self, rng: &mut Rng, within: In, id: u32) {
        self.looked_at += 1;
        let group = &self.lens.segments[within.segment].groups[at(id)];
        if !self.lens.demand.fits(&group.state) {
            return;
        }
        let total = self.lens.demand.score(&group.state, group.evenness) + within.bonus;
        if total < self.best {
            return;
        }
        let mut len = count(group.members.len());
        if !self.apart.is_empty() {
            let segment = u32::try_from(within.segment).unwrap_or(u32::MAX);
            let apart = self.apart.get(&(segment, id)).copied();
            len -= u64::from(apart.unwrap_or(0));
        }
        self.offer(rng, total, len, Choice::Group(within.segment, id));
    }

    /// Looks at the nodes apart, one by one.
    pub(crate) fn apart_nodes(&mut self, rng: &mut Rng) {
        let lens = self.lens;
        for slot in lens.apart() {
            self.node(rng, slot);
        }
    }

    /// One of the best nodes.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<u32> {
        match self.choice? {
            Choice::Node(slot) => Some(slot),
            Choice::Group(segment, group) => self.member(rng, segment, group),
            Choice::Cell(segment, family, mut id) => {
                let all = &self.lens.segments[segment];
                let tree = &all.families[family].tree;
                loop {
                    let cell = tree.cell(id);
                    let mut left = rng.u64(0..u64::from(cell.nodes_len));
                    let mut is_it = |len: u64| {
                        let is_it = left < len;
                        left = left.saturating_sub(len);
                        is_it
                    };
                    match &cell.body {
                        Body::Groups(list) => {
                            let mut list = list.iter();
                            let group = list
                                .find(|group| is_it(count(all.groups[at(**group)].members.len())));
                            return self.member(rng, segment, *group?);
                        }
                        Body::Parts(parts) => {
                            let mut parts = tree.parts(parts);
                            id = parts.find(|part| is_it(u64::from(tree.cell(*part).nodes_len)))?;
                        }
                    }
                }
            }
        }
    }

    /// One of the nodes of a group that are not apart.
    fn member(&self, rng: &mut Rng, segment: usize, group: u32) -> Option<u32> {
        let slots = self.lens.segments[segment].groups[at(group)]
            .members
            .as_slice();
        if self.apart.is_empty() {
            return slots.get(rng.usize(0..slots.len())).copied();
        }
        for _ in 0..DRAWS_MAX {
            let slot = slots[rng.usize(0..slots.len())];
            if !self.lens.is_apart(slot) {
                return Some(slot);
            }
        }
        let slots = slots
            .iter()
            .copied()
            .filter(|slot| !self.lens.is_apart(*slot));
        let slots: Vec<u32> = slots.collect();
        slots.get(rng.usize(0..slots.len().max(1))).copied()
    }
}

/// Draws after which the nodes that are apart are sorted out.
const DRAWS_MAX: usize = 32;

/// A family within a segment, and the scores of its kind.
#[derive(Clone, Copy)]
struct In {
    segment: usize,
    family: usize,
    bonus: f64,
}
