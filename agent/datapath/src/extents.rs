//! Allocator of the arena of backend sets; a freed extent is in quarantine until no program can still read it.

use std::collections::VecDeque;

use dormouse_ebpf::service::{ROW_LEN, SETS_MAX, Set};

use super::bits::Bits;
use super::grace::Moment;

/// Size classes, up to a set of `u16::MAX` backends and as many terminating ones.
const CLASSES: usize = 14;

/// Rows of the arena by size class: a set of up to `16 << class` backends takes `1 << class` rows.
#[derive(Debug)]
pub(super) struct Extents {
    taken: Bits,
    used: u32,
    /// Start of the next search, by class.
    next: [u32; CLASSES],
    /// Quarantine, oldest first: grace period of the release, class, row.
    quarantine: VecDeque<(u64, u32, u32)>,
}

impl Extents {
    /// All rows are free except the first: offset 0 means "no set".
    pub(super) fn new() -> Self {
        let mut taken = Bits::none(SETS_MAX / ROW_LEN);
        taken.put(0);
        Self {
            taken,
            used: 0,
            next: [0; CLASSES],
            quarantine: VecDeque::new(),
        }
    }

    /// Marks the extent of a set that was found in use. Several sets may share one.
    pub(super) fn mark(&mut self, set: Set) {
        if len(set) == 0 {
            return;
        }
        let row = set.offset / ROW_LEN;
        for row in row..row + (1 << class(len(set))) {
            self.used += u32::from(self.taken.put(row));
        }
    }

    /// Number of used rows.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Allocates an extent for `len` ids; 0 for none.
    pub(super) fn take(&mut self, len: u32, now: Moment) -> Option<u32> {
        if len == 0 {
            return Some(0);
        }
        while let Some(&(since, class, row)) = self.quarantine.front()
            && since < now.over
        {
            self.quarantine.pop_front();
            for row in row..row + (1 << class) {
                self.taken.take(row);
            }
        }
        let class = class(len);
        let next = self.next.get_mut(class as usize)?;
        let row = self.taken.gap(*next, 1 << class)?;
        *next = row + (1 << class);
        for row in row..row + (1 << class) {
            self.taken.put(row);
        }
        self.used += 1 << class;
        Some(row * ROW_LEN)
    }

    /// Frees the extent of a set.
    pub(super) fn release(&mut self, set: Set, now: Moment) {
        self.release_len(set.offset, len(set), now);
    }

    /// Frees an extent of `len` ids.
    pub(super) fn release_len(&mut self, offset: u32, len: u32, now: Moment) {
        if len > 0 {
            let class = class(len);
            self.used = self.used.saturating_sub(1 << class);
            self.quarantine
                .push_back((now.begun, class, offset / ROW_LEN));
        }
    }

    /// Whether a grace period would free more.
    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantine.is_empty()
    }
}

/// Number of ids in a set, with terminating ones.
pub(super) fn len(set: Set) -> u32 {
    u32::from(set.count) + u32::from(set.leaving)
}

fn class(len: u32) -> u32 {
    len.div_ceil(ROW_LEN).max(1).next_power_of_two().ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(offset: u32, count: u16) -> Set {
        Set {
            offset,
            count,
            ..Set::default()
        }
    }

    #[test]
    fn extents_do_not_overlap_and_are_reused_after_a_grace_period() {
        let now = |over| Moment { begun: over, over };
        let mut extents = Extents::new();
        extents.mark(set(32, 1));
        assert_eq!(extents.take(16, now(1)), Some(16));
        assert_eq!(extents.take(17, now(1)), Some(64), "two rows, aligned");
        assert_eq!(extents.take(0, now(1)), Some(0));
        extents.release(set(16, 16), now(1));
        assert_eq!(extents.used(), 3);
        for _ in 0..SETS_MAX / ROW_LEN - 5 {
            assert!(extents.take(1, now(1)).is_some_and(|offset| offset > 0));
        }
        assert_eq!(extents.take(1, now(1)), None);
        assert_eq!(extents.take(1, now(2)), Some(16));
    }
}
