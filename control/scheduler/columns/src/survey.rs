//! What normalization needs to know before nodes are scored: the feasible nodes of each kind.

use crate::class::REJECTED;
use crate::lens::Lens;
use crate::segment::Place;
use crate::spread::Scores;
use crate::tree::at;
use crate::window::Piece;

/// The feasible nodes within a window.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    /// The number of nodes of each kind.
    pub(crate) feasible: Vec<u64>,
    /// The number of those that are judged by themselves.
    feasible_apart: Vec<u64>,
    /// These nodes, with their kinds.
    apart: Vec<(u32, u32)>,
}

impl Survey {
    pub(crate) fn new(lens: &Lens<'_>, pieces: &[Piece]) -> Self {
        let kinds_len = lens.bonus.len();
        let mut survey = Self {
            feasible: vec![0; kinds_len],
            feasible_apart: vec![0; kinds_len],
            apart: Vec::new(),
        };
        let mut has_whole = false;
        for piece in pieces {
            match piece {
                Piece::Whole(segment) => {
                    has_whole = true;
                    survey.add_segment(lens, *segment);
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
        if has_whole {
            // Parts have none of them then.
            lens.repelled()
                .for_each(|slot| survey.set_apart(lens, slot));
            lens.spread_apart()
                .for_each(|slot| survey.set_apart(lens, slot));
        }
        survey
    }

    /// Adds the nodes of a segment, with those that pods keep the pod away from.
    fn add_segment(&mut self, lens: &Lens<'_>, segment: usize) {
        let segment = &lens.segments[segment];
        for (kind, len) in segment.fitting(&lens.demand) {
            if lens.bonus[at(kind)] != REJECTED {
                self.feasible[at(kind)] += len;
            }
        }
        for &slot in segment.odd.iter().filter(|slot| !lens.is_apart(**slot)) {
            self.add(lens, slot);
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
            self.apart.push((slot, kind));
        }
    }

    /// Counts a node of a segment that is judged by itself, which the segment's number of feasible ones may contain.
    fn set_apart(&mut self, lens: &Lens<'_>, slot: u32) {
        let row = &lens.rows[at(slot)];
        if lens.bonus[at(row.kind)] == REJECTED {
            return;
        }
        if matches!(row.place, Place::Group(..)) && lens.demand.fits(&row.state) {
            self.feasible[at(row.kind)] -= 1;
        }
        self.add(lens, slot);
    }

    /// Takes all feasible nodes into account.
    pub(crate) fn extend(&self, lens: &Lens<'_>, scores: &mut Scores<'_>) {
        for kind in lens.kinds.all() {
            if self.feasible[at(kind)] > self.feasible_apart[at(kind)] {
                scores.extend(lens.kinds, kind, None);
            }
        }
        for (slot, kind) in &self.apart {
            scores.extend(lens.kinds, *kind, Some(*slot));
        }
    }
}
