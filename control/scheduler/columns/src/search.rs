//! The search for the best nodes: cell by cell, where the best bound is first and what cannot be as good is left out, or
//! node by node within a part of a segment. Ties are drawn uniformly while they are found.

mod draw;

use std::borrow::Cow;

use dormouse_scheduler_decide::Pod;
use dormouse_scheduler_decide::Snapshot;
use dormouse_scheduler_decide::{Profile, facts::NodeView};

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
    apart_len_max: u64,
    best: f64,
    ties: Vec<(Choice, u64)>,
    pub(crate) looked_at: u64,
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl Lens<'_> {
    /// Whether a node is judged by itself, and not by its kind and amounts alone.
    pub(crate) fn is_apart(&self, slot: u32) -> bool {
        let mut spreading = self.spreading.iter();
        spreading.any(|pods| pods.contains_key(&slot))
            || self.is_repelled(slot, self.rows[at(slot)].kind)
    }

    /// No more nodes than that are judged by themselves.
    pub(crate) fn apart_len_max(&self) -> u64 {
        let all = self.repelling.iter().chain(&self.spreading);
        all.map(|pods| count(pods.len())).sum()
    }

    /// The nodes that are judged by themselves, but for those that pods keep the pod away from.
    pub(crate) fn spread_apart(&self) -> impl Iterator<Item = u32> {
        let all = self.spreading.iter().enumerate();
        all.flat_map(move |(index, pods)| {
            let before = &self.spreading[..index];
            let slots = pods.keys().copied();
            slots.filter(|slot| before.iter().all(|pods| !pods.contains_key(slot)))
        })
    }

    /// The nodes that pods keep the pod away from, and that are not in the spread.
    pub(crate) fn repelled(&self) -> impl Iterator<Item = u32> {
        let all = self.repelling.iter().enumerate();
        all.flat_map(move |(index, pods)| {
            let before = &self.repelling[..index];
            let slots = pods.keys().copied();
            slots.filter(move |slot| {
                let mut others = before.iter().chain(&self.spreading);
                others.all(|pods| !pods.contains_key(slot))
                    && self.kinds.has_hostname(self.rows[at(*slot)].kind)
            })
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
        Self {
            lens,
            apart_len_max: lens.apart_len_max(),
            best: REJECTED,
            ties: Vec::new(),
            looked_at: 0,
        }
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
            self.cell(at, ROOT);
        }
        for &slot in &segment.odd {
            if self.apart_len_max == 0 || !self.lens.is_apart(slot) {
                self.any_node(slot);
            }
        }
    }

    fn cell(&mut self, within: In, id: u32) {
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
        let len = u64::from(cell.nodes_len);
        if range.fits_all && range.least >= range.most && len > self.apart_len_max {
            let choice = Choice::Cell(within.segment, within.family, id);
            return self.offer(range.most + within.bonus, len, choice);
        }
        match &cell.body {
            Body::Groups(list) => {
                for &group in list {
                    self.group(within, group);
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
                        self.cell(within, part);
                    }
                }
            }
        }
    }

    fn group(&mut self, within: In, id: u32) {
        self.looked_at += 1;
        let group = &self.lens.segments[within.segment].groups[at(id)];
        if !self.lens.demand.fits(&group.state) {
            return;
        }
        let total = self.lens.demand.score(&group.state, group.evenness) + within.bonus;
        if total < self.best {
            return;
        }
        let slots = group.members.as_slice();
        let mut apart = slots.iter().map(|slot| self.lens.is_apart(*slot));
        if count(slots.len()) > self.apart_len_max || apart.any(|is_apart| !is_apart) {
            self.offer(total, count(slots.len()), Choice::Group(within.segment, id));
        }
    }

    /// Looks at the nodes apart, one by one.
    pub(crate) fn apart_nodes(&mut self) {
        let lens = self.lens;
        for slot in lens.spread_apart() {
            self.any_node(slot);
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
