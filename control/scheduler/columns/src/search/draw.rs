//! The draw among equally good nodes.

use fastrand::Rng;

use super::{Choice, Search};
use crate::tree::at;

/// Draws after which the nodes that are apart are sorted out.
const DRAWS_MAX: usize = 32;

impl Search<'_> {
    /// One of the best nodes. Sets of nodes can have some that are apart, and are not as good: then it is drawn again.
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
        let all: Vec<u32> = self.as_good().collect();
        all.get(rng.usize(0..all.len().max(1))).copied()
    }

    /// The best nodes, without those of sets that are apart.
    pub(super) fn as_good(&self) -> impl Iterator<Item = u32> {
        let all = self.ties.iter();
        all.flat_map(|(choice, len)| {
            let slots = (0..*len).filter_map(|index| self.slot(*choice, index));
            slots.filter(|slot| self.is_as_good(*choice, *slot))
        })
    }

    fn is_as_good(&self, choice: Choice, slot: u32) -> bool {
        matches!(choice, Choice::Node(_)) || self.apart_len_max == 0 || !self.lens.is_apart(slot)
    }

    /// The slot of an index within a set.
    fn slot(&self, choice: Choice, index: u64) -> Option<u32> {
        match choice {
            Choice::Node(slot) => Some(slot),
            Choice::Group(segment, group) => {
                let group = &self.lens.segments[segment].groups[at(group)];
                let slots = group.members.as_slice();
                slots.get(usize::try_from(index).ok()?).copied()
            }
            Choice::Cell(segment, family, id) => {
                let segment = &self.lens.segments[segment];
                let tree = &segment.families[family].tree;
                tree.slot(&segment.groups, id, index)
            }
        }
    }
}
