//! What normalization needs to know before nodes are scored: the feasible nodes of each kind.

use crate::by_node::ByNode;
use crate::class::REJECTED;
use crate::lens::Lens;
use crate::number::{at, wide};
use crate::spread::{Host, Scores};
use crate::tree::ROOT;
use crate::window::Piece;

/// The feasible nodes within a window.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    /// The number of nodes of each kind.
    pub(crate) feasible: Vec<u64>,
    /// The number of those that are judged by themselves.
    feasible_apart: Vec<u64>,
    /// These nodes, with their kinds.
    apart: Vec<(u32, Host)>,
    /// All nodes of the kind with comparable amounts are feasible, unless the kind is rejected.
    is_roomy: Vec<bool>,
}

impl Survey {
    pub(crate) fn new(lens: &Lens<'_>, pieces: &[Piece]) -> Self {
        let kinds_len = lens.bonus.len();
        let mut survey = Self {
            feasible: vec![0; kinds_len],
            feasible_apart: vec![0; kinds_len],
            apart: Vec::new(),
            is_roomy: vec![true; kinds_len],
        };
        let mut has_whole = false;
        for piece in pieces {
            match piece {
                Piece::Whole(segment) => {
                    has_whole = true;
                    survey.add_segment(lens, *segment);
                    if let Some(barred) = &lens.barred {
                        for position in barred.within(lens.positions_of(*segment)) {
                            survey.set_apart(lens, lens.order[position]);
                        }
                    }
                }
                Piece::Range(_, positions) => {
                    for position in positions.clone() {
                        survey.add(lens, lens.order[at(position)]);
                    }
                }
                Piece::Part(part) => {
                    for &slot in part {
                        survey.add_feasible(lens, slot);
                    }
                }
            }
        }
        if let Some(by_node) = lens.only_spread().filter(|_| has_whole) {
            survey.add_levels(lens, by_node);
        } else if has_whole {
            if lens.barred.is_none() {
                let repelled = lens.repelled();
                repelled.for_each(|slot| survey.set_apart(lens, slot));
            }
            lens.spread_apart()
                .for_each(|slot| survey.set_apart(lens, slot));
        }
        survey
    }

    /// Adds the nodes of a segment, with those that pods keep the pod away from.
    fn add_segment(&mut self, lens: &Lens<'_>, segment: usize) {
        let segment = &lens.segments[segment];
        for ((kind, len), family) in segment.fitting(&lens.demand).zip(&segment.families) {
            if lens.bonus[at(kind)] != REJECTED {
                self.feasible[at(kind)] += len;
                self.is_roomy[at(kind)] &= len == u64::from(family.tree.cell(ROOT).nodes_len);
            }
        }
        let is_by_level = lens.only_spread().is_some();
        for &slot in &segment.odd {
            let kind = at(lens.rows[at(slot)].kind);
            self.is_roomy[kind] = false;
            if !is_by_level && !lens.is_apart(slot) {
                self.add(lens, slot);
            } else if is_by_level && lens.is_feasible(slot) {
                self.feasible[kind] += 1;
            }
        }
    }

    /// Takes in, level by level, the nodes that are apart by one constraint. They were counted with the others.
    fn add_levels(&mut self, lens: &Lens<'_>, by_node: &ByNode) {
        let mut apart = vec![0; self.feasible.len()];
        for (level, slots) in by_node.levels() {
            apart[at(level.kind)] += wide(slots.len());
        }
        for (level, slots) in by_node.levels() {
            let kind = at(level.kind);
            if lens.bonus[kind] == REJECTED {
                continue;
            }
            let mut feasible = slots.iter().filter(|slot| lens.is_feasible(**slot));
            if self.feasible[kind] <= apart[kind] {
                let feasible = wide(feasible.count());
                self.feasible_apart[kind] += feasible;
                if feasible == 0 {
                    continue;
                }
            } else if !self.is_roomy[kind] && feasible.next().is_none() {
                continue;
            }
            self.apart.push((level.kind, Host::With(level.pods)));
        }
    }

    fn add(&mut self, lens: &Lens<'_>, slot: u32) {
        if lens.is_feasible(slot) {
            self.add_feasible(lens, slot);
        }
    }

    fn add_feasible(&mut self, lens: &Lens<'_>, slot: u32) {
        let kind = lens.rows[at(slot)].kind;
        self.feasible[at(kind)] += 1;
        if lens.is_apart(slot) {
            self.feasible_apart[at(kind)] += 1;
            self.apart.push((kind, Host::Slot(slot)));
        }
    }

    /// Counts a node of a segment that is judged by itself, which the segment's number of feasible ones may contain.
    fn set_apart(&mut self, lens: &Lens<'_>, slot: u32) {
        if lens.fits_by_amounts(slot) {
            self.feasible[at(lens.rows[at(slot)].kind)] -= 1;
        }
        self.add(lens, slot);
    }

    /// Takes all feasible nodes into account.
    pub(crate) fn extend(&self, lens: &Lens<'_>, scores: &mut Scores<'_>) {
        for kind in lens.kinds.all() {
            if self.feasible[at(kind)] > self.feasible_apart[at(kind)] {
                scores.extend(lens.kinds, kind, Host::Empty);
            }
        }
        for (kind, host) in &self.apart {
            scores.extend(lens.kinds, *kind, *host);
        }
    }
}
