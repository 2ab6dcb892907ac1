//! The search for the best nodes: cell by cell, where the best bound is first and what cannot be as good is left out, or
//! node by node within a part of a segment. Cells that are as good at most are not looked into before a node is drawn.

mod draw;

use crate::cell::{Body, PARTS};
use crate::class::REJECTED;
use crate::demand::Range;
use crate::group::Entry;
use crate::lens::Lens;
use crate::number::at;
use crate::segment::Segment;
use crate::tree::ROOT;
use crate::window::Piece;

/// A set of nodes, all of them as good as the best, unless it is said.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Node(u32),
    /// A group of a piece's segment.
    Group(usize, u32),
    /// A cell of a family of a piece's segment.
    Cell(In, u32),
    /// The same, with nodes that are not as good, or even none that is.
    Open(In, u32),
}

/// The best nodes so far.
pub(crate) struct Search<'a> {
    lens: &'a Lens<'a>,
    pieces: &'a [Piece],
    apart_len_max: u64,
    best: f64,
    ties: Vec<(Choice, u64)>,
    pub(crate) looked_at: u64,
    /// Sets of no more nodes than that can have nodes apart alone.
    doubtful_len: u64,
    /// No node has a larger score by its amounts.
    most_of_amounts: f64,
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
            doubtful_len: 0,
            most_of_amounts: REJECTED,
        }
    }

    /// Looks at all pieces. At first, no set is expected to have nodes apart alone; if that is wrong, each is looked into.
    pub(crate) fn run(&mut self) {
        self.look();
        if !self.is_certain() {
            self.doubtful_len = self.apart_len_max;
            self.best = REJECTED;
            self.ties.clear();
            self.look();
        }
    }

    /// Whether one of the best nodes is certain to be as good as it was taken for.
    fn is_certain(&self) -> bool {
        let exact = self.ties.iter();
        let exact = exact.filter(|(choice, _)| !matches!(choice, Choice::Open(..)));
        let all: u64 = exact.map(|(_, len)| len).sum();
        all > self.apart_len_max || self.ties.is_empty() || self.as_good().next().is_some()
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

    fn look(&mut self) {
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
        !matches!(self.pieces[piece], Piece::Range(..)) && len > self.doubtful_len
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
            let within = In {
                piece,
                family,
                bonus,
            };
            (bonus != REJECTED).then_some((within, range))
        });
        let mut ranked: Vec<_> = ranked.collect();
        let total = |(within, range): &(In, Range)| range.most + within.bonus;
        ranked.sort_unstable_by(|a, b| total(b).total_cmp(&total(a)));
        for (within, range) in ranked {
            self.most_of_amounts = self.most_of_amounts.max(range.most);
            self.cell(within, ROOT, range);
        }
        if !segment.odd.is_empty() {
            self.most_of_amounts = self.lens.demand.weigh(100, 100);
        }
        for &slot in &segment.odd {
            if self.is_member(piece, slot) {
                self.any_node(slot);
            }
        }
    }

    /// Looks at a cell, whose nodes are within a range.
    fn cell(&mut self, within: In, id: u32, range: Range) {
        let total = range.most + within.bonus;
        let Some(segment) = self.segment_of(within.piece).filter(|_| total >= self.best) else {
            return;
        };
        let tree = &segment.families[within.family].tree;
        let len = u64::from(tree.cell(id).nodes_len);
        if range.fits_all && range.least >= range.most {
            let mut is_member = |slot| self.is_member(within.piece, slot);
            if self.is_enough(within.piece, len) || tree.any(&segment.groups, id, &mut is_member) {
                self.offer(total, len, Choice::Cell(within, id));
            }
        } else if total <= self.best {
            self.ties.push((Choice::Open(within, id), len));
        } else {
            self.open(within, id);
        }
    }

    /// Looks into a cell.
    fn open(&mut self, within: In, id: u32) {
        let Some(segment) = self.segment_of(within.piece) else {
            return;
        };
        let tree = &segment.families[within.family].tree;
        match &tree.cell(id).body {
            Body::Groups(list) => {
                for entry in list {
                    self.group(within, entry, segment);
                }
            }
            Body::Parts(parts) => {
                let mut ranked = [(Range::nothing(), 0_u32); PARTS];
                let mut len = 0;
                for (top, part) in tree.tops(*parts, &self.lens.demand.tops) {
                    let is_good = f64::from(top) + within.bonus >= self.best;
                    let bounds = tree.cell(part).bounds.as_ref().filter(|_| is_good);
                    if let Some(range) = bounds.and_then(|all| self.lens.demand.range(all)) {
                        ranked[len] = (range, part);
                        len += 1;
                    }
                }
                ranked[..len].sort_unstable_by(|a, b| b.0.most.total_cmp(&a.0.most));
                for &(range, part) in &ranked[..len] {
                    self.cell(within, part, range);
                }
            }
        }
    }

    fn group(&mut self, within: In, entry: &Entry, segment: &Segment) {
        self.looked_at += 1;
        if !self.lens.demand.fits(&entry.state) {
            return;
        }
        let total = self.lens.demand.score(&entry.state, entry.evenness) + within.bonus;
        if total < self.best {
            return;
        }
        let len = u64::from(entry.nodes_len);
        let members = &segment.groups[at(entry.group)].members;
        let has_member = || {
            let mut slots = members.as_slice().iter();
            slots.any(|slot| self.is_member(within.piece, *slot))
        };
        if self.is_enough(within.piece, len) || has_member() {
            self.offer(total, len, Choice::Group(within.piece, entry.group));
        }
    }

    /// Looks at the nodes apart, one by one, or leaves out those of a level that cannot be as good.
    fn apart_nodes(&mut self) {
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

/// A family within a piece's segment, and the scores of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct In {
    piece: usize,
    family: usize,
    bonus: f64,
}
