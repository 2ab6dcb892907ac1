//! The draw among equally good nodes.

use fastrand::Rng;

use super::{Choice, Search};
use crate::number::at;

/// Draws after which the nodes that are apart, or outside of the window, are sorted out.
const DRAWS_MAX: usize = 128;

impl Search<'_> {
    /// One of the best nodes. Sets of nodes can have some that are apart, or outside of the window, or not as good: then it
    /// is drawn again, from less. Each draw has the same chance for each of the best nodes.
    pub(crate) fn draw(&mut self, rng: &mut Rng) -> Option<u32> {
        for _ in 0..DRAWS_MAX {
            let all: u64 = self.ties.iter().map(|(_, len)| len).sum();
            if all == 0 {
                return None;
            }
            let mut left = rng.u64(0..all);
            let tie = self.ties.iter().position(|(_, len)| {
                let is_it = left < *len;
                left = left.saturating_sub(if is_it { 0 } else { *len });
                is_it
            })?;
            let (choice, _) = self.ties[tie];
            let slot = self.slot(choice, left)?;
            if !self.is_as_good(choice, slot) {
                continue;
            }
            if !matches!(choice, Choice::Open(..)) || self.is_best(slot) {
                return Some(slot);
            }
            self.resolve(tie);
        }
        while let Some(tie) = self.first_open() {
            self.resolve(tie);
        }
        let all: Vec<u32> = self.as_good().collect();
        all.get(rng.usize(0..all.len().max(1))).copied()
    }

    fn first_open(&self) -> Option<usize> {
        let mut all = self.ties.iter();
        all.position(|(choice, _)| matches!(choice, Choice::Open(..)))
    }

    /// Looks into an open cell: what is as good in it takes its place.
    fn resolve(&mut self, tie: usize) {
        if let (Choice::Open(within, id), _) = self.ties.swap_remove(tie) {
            self.open(within, id);
        }
    }

    /// Whether a node that is not apart is one of the best.
    fn is_best(&mut self, slot: u32) -> bool {
        self.looked_at += 1;
        let total = self.lens.total(slot);
        self.lens.is_feasible(slot) && total.is_some_and(|total| total >= self.best)
    }

    /// The best nodes of all sets but open ones, without those that are apart or outside of the window.
    pub(super) fn as_good(&self) -> impl Iterator<Item = u32> {
        let all = self.ties.iter();
        let exact = all.filter(|(choice, _)| !matches!(choice, Choice::Open(..)));
        exact.flat_map(|(choice, len)| {
            let slots = (0..*len).filter_map(|index| self.slot(*choice, index));
            slots.filter(|slot| self.is_as_good(*choice, *slot))
        })
    }

    fn is_as_good(&self, choice: Choice, slot: u32) -> bool {
        match choice {
            Choice::Node(_) => true,
            Choice::Group(piece, _) => self.is_member(piece, slot),
            Choice::Cell(within, _) | Choice::Open(within, _) => self.is_member(within.piece, slot),
        }
    }

    /// The slot of an index within a set.
    fn slot(&self, choice: Choice, index: u64) -> Option<u32> {
        match choice {
            Choice::Node(slot) => Some(slot),
            Choice::Group(piece, group) => {
                let group = &self.segment_of(piece)?.groups[at(group)];
                let slots = group.members.as_slice();
                slots.get(usize::try_from(index).ok()?).copied()
            }
            Choice::Cell(within, id) | Choice::Open(within, id) => {
                let segment = self.segment_of(within.piece)?;
                let tree = &segment.families[within.family].tree;
                tree.slot(&segment.groups, id, index)
            }
        }
    }
}
