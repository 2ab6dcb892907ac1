//! Places in the arena of sets; one that was given back rests until no program in the kernel can still read it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, Set};

use super::Moment;

/// Rows of the arena by size class: a set of up to `16 << class` backends has `1 << class` rows.
#[derive(Debug)]
pub(super) struct Rows {
    next: u32,
    free: BTreeMap<u32, BTreeSet<u32>>,
    /// When each was given back, oldest first, with its class.
    resting: VecDeque<(u64, u32, u32)>,
}

impl Rows {
    /// All rows past those in use; holes before them come back when their sets change.
    pub(super) fn with_used(sets: impl Iterator<Item = Set>) -> Self {
        let end = |set: Set| set.offset / ROW_LEN + (1 << class(set.count));
        Self {
            next: sets.map(end).max().unwrap_or(0),
            free: BTreeMap::new(),
            resting: VecDeque::new(),
        }
    }

    /// The offset of a place for so many ids.
    pub(super) fn take(&mut self, count: u16, now: Moment) -> Option<u32> {
        while let Some(&(since, class, row)) = self.resting.front()
            && since < now.over
        {
            self.resting.pop_front();
            self.free.entry(class).or_default().insert(row);
        }
        let class = class(count);
        let row = self
            .free
            .get_mut(&class)
            .and_then(BTreeSet::pop_first)
            .or_else(|| {
                let row = self.next;
                (row + (1 << class) <= SETS_MAX / ROW_LEN).then(|| {
                    self.next += 1 << class;
                    row
                })
            })?;
        Some(row * ROW_LEN)
    }

    pub(super) fn rest(&mut self, set: Set, now: Moment) {
        if set != Set::default() {
            self.resting
                .push_back((now.begun, class(set.count), set.offset / ROW_LEN));
        }
    }
}

fn class(count: u16) -> u32 {
    u32::from(count)
        .div_ceil(ROW_LEN)
        .max(1)
        .next_power_of_two()
        .ilog2()
}
