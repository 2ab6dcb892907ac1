//! The draw among equally good nodes.

use fastrand::Rng;

use super::{Choice, Search};
use crate::tree::at;

/// Draws after which the nodes that are apart, or outside of the window, are sorted out.
const DRAWS_MAX: usize = 128;

impl Search<'_> {
    /// One of the best nodes. Sets of nodes can have some that are apart, or outside of the window: then it is drawn
    /// again.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<u32> {
        let all: u64 = self.ties.iter().map(|(_, len)| len).sum();
        if all == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let mut left = rng.u64(0..all);
            let tie = self.ties.iter().find(|(_, len)| {
                let is_it = left < *len;
                left = left.saturating_sub(if is_it { 0 } else { *len });
                is_it
            });
            let (choice, _) = *tie?;
            let slot = self.slot(choice, left)?;
            if self.is_as_good(choice, slot) {
                return Some(slot);
            }
        }
        let all = self.ties.iter().flat_map(|(choice, len)| {
            let slots = (0..*len).filter_map(|index| self.slot(*choice, index));
            slots.filter(|slot| self.is_as_good(*choice, *slot))
        });
        let all: Vec<u32> = all.collect();
        all.get(rng.usize(0..all.len().max(1))).copied()
    }

    fn is_as_good(&self, choice: Choice, slot: u32) -> bool {
        match choice {
            Choice::Node(_) => true,
            Choice::Group(piece, _) | Choice::Cell(piece, ..) => self.is_member(piece, slot),
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
            Choice::Cell(piece, family, id) => {
                let segment = self.segment_of(piece)?;
                let tree = &segment.families[family].tree;
                tree.slot(&segment.groups, id, index)
            }
        }
    }
}
