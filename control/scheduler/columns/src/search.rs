//! The search for the best nodes: cell by cell, where the best bound is first and what cannot be as good is left out, or
//! node by node within a part of a segment. Ties are drawn uniformly while they are found.

mod draw;

use crate::class::REJECTED;
use crate::group::Group;
use crate::lens::Lens;
use crate::segment::Segment;
use crate::tree::{Body, ROOT, at};
use crate::window::Piece;

/// A set of nodes that are equally good.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Node(u32),
    /// A group of a piece's segment.
    Group(usize, u32),
    /// A cell of a family of a piece's segment.
    Cell(usize, usize, u32),
}

/// The best nodes so far.
pub(crate) struct Search<'a> {
    lens: &'a Lens<'a>,
    pieces: &'a [Piece],
    apart_len_max: u64,
    best: f64,
    ties: Vec<(Choice, u64)>,
    pub(crate) looked_at: u64,
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl<'a> Search<'a> {
    pub(crate) fn new(lens: &'a Lens<'a>, pieces: &'a [Piece]) -> Self {
        Self {
            lens,
            pieces,
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

    /// Looks at all pieces.
    pub(crate) fn run(&mut self) {
        let mut has_whole = false;
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Whole(segment) => {
                    has_whole = true;
                    self.segment(index, *segment);
                }
                Piece::Range(segment, _) => self.segment(index, *segment),
                Piece::Part(feasible) => feasible.iter().for_each(|slot| self.node(*slot)),
            }
        }
        if has_whole {
            self.apart_nodes();
        }
    }

    /// The segment of a piece.
    fn segment_of(&self, piece: usize) -> Option<&'a Segment> {
        match self.pieces.get(piece)? {
            Piece::Whole(segment) | Piece::Range(segment, _) => Some(&self.lens.segments[*segment]),
            Piece::Part(_) => None,
        }
    }

    /// Whether a node of a piece's segment is in the piece, and not apart.
    fn is_member(&self, piece: usize, slot: u32) -> bool {
        let is_inside = match &self.pieces[piece] {
            Piece::Range(_, positions) => positions.contains(&self.lens.positions[at(slot)]),
            Piece::Whole(_) | Piece::Part(_) => true,
        };
        is_inside && (self.apart_len_max == 0 || !self.lens.is_apart(slot))
    }

    /// Whether so many nodes of a piece's segment are enough that one of them is in the piece, and not apart.
    fn is_enough(&self, piece: usize, len: u64) -> bool {
        !matches!(self.pieces[piece], Piece::Range(..)) && len > self.apart_len_max
    }

    /// Looks at one feasible node.
    fn node(&mut self, slot: u32) {
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

    /// Looks at all nodes of a piece's segment but those apart.
    fn segment(&mut self, piece: usize, index: usize) {
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
                piece,
                family,
                bonus,
            };
            self.cell(at, ROOT);
        }
        for &slot in &segment.odd {
            if self.is_member(piece, slot) {
                self.any_node(slot);
            }
        }
    }

    fn cell(&mut self, within: In, id: u32) {
        let Some(segment) = self.segment_of(within.piece) else {
            return;
        };
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
        if range.fits_all && range.least >= range.most {
            let mut is_member = |slot| self.is_member(within.piece, slot);
            if self.is_enough(within.piece, len) || tree.any(&segment.groups, id, &mut is_member) {
                let choice = Choice::Cell(within.piece, within.family, id);
                self.offer(range.most + within.bonus, len, choice);
            }
            return;
        }
        match &cell.body {
            Body::Groups(list) => {
                for &group in list {
                    self.group(within, group, &segment.groups[at(group)]);
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

    fn group(&mut self, within: In, id: u32, group: &Group) {
        self.looked_at += 1;
        if !self.lens.demand.fits(&group.state) {
            return;
        }
        let total = self.lens.demand.score(&group.state, group.evenness) + within.bonus;
        if total < self.best {
            return;
        }
        let slots = group.members.as_slice();
        let len = count(slots.len());
        let mut members = slots.iter();
        if self.is_enough(within.piece, len)
            || members.any(|slot| self.is_member(within.piece, *slot))
        {
            self.offer(total, len, Choice::Group(within.piece, id));
        }
    }

    /// Looks at the nodes apart, one by one.
    fn apart_nodes(&mut self) {
        let lens = self.lens;
        for slot in lens.spread_apart() {
            self.any_node(slot);
        }
    }
}

/// A family within a piece's segment, and the scores of its kind.
#[derive(Clone, Copy)]
struct In {
    piece: usize,
    family: usize,
    bonus: f64,
}
