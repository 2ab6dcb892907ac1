//! Allocator of ids; a released id is in quarantine until no program can still use it.

use std::collections::VecDeque;

use super::bits::Bits;
use super::grace::Moment;

/// Ids `0..max`. Time is counted in grace periods.
#[derive(Debug)]
pub(super) struct Ids {
    /// In use or in quarantine.
    taken: Bits,
    used: u32,
    /// Start of the next search: ids are used in turn, so a released one is reused late.
    next: u32,
    /// Quarantine, oldest first: grace period of the release, id.
    quarantine: VecDeque<(u64, u32)>,
}

impl Ids {
    /// All ids are free.
    pub(super) fn new(max: u32) -> Self {
        Self {
            taken: Bits::none(max),
            used: 0,
            next: 0,
            quarantine: VecDeque::new(),
        }
    }

    /// Marks an id that was found in use. Returns whether it was free.
    pub(super) fn mark(&mut self, id: u32) -> bool {
        let new = self.taken.put(id);
        if new {
            self.used += 1;
            self.next = self.next.max(id + 1);
        }
        new
    }

    /// Whether the id is in use or in quarantine.
    pub(super) fn has(&self, id: u32) -> bool {
        self.taken.has(id)
    }

    /// Number of ids in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Allocates a free id.
    pub(super) fn take(&mut self, now: Moment) -> Option<u32> {
        self.end_quarantine(now);
        let id = self.taken.gap(self.next, 1)?;
        self.taken.put(id);
        self.used += 1;
        self.next = id + 1;
        Some(id)
    }

    /// Allocates a free id, from `from` on if there is one.
    pub(super) fn take_from(&mut self, from: u32, now: Moment) -> Option<u32> {
        self.next = from;
        self.take(now)
    }

    /// Releases an id into quarantine.
    pub(super) fn release(&mut self, id: u32, now: Moment) {
        self.used = self.used.saturating_sub(1);
        self.quarantine.push_back((now.begun, id));
    }

    /// Frees an id that no program has seen, without quarantine.
    pub(super) fn undo(&mut self, id: u32) {
        if self.taken.take(id) {
            self.used = self.used.saturating_sub(1);
        }
    }

    /// Whether a grace period would free ids.
    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantine.is_empty()
    }

    fn end_quarantine(&mut self, now: Moment) {
        while let Some(&(since, id)) = self.quarantine.front()
            && since < now.over
        {
            self.quarantine.pop_front();
            self.taken.take(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moment after so many complete periods.
    fn after(periods: u64) -> Moment {
        Moment {
            begun: periods,
            over: periods,
        }
    }

    #[test]
    fn a_released_id_is_in_quarantine_for_a_grace_period() {
        let mut ids = Ids::new(2);
        assert_eq!(ids.take(after(1)), Some(0));
        ids.release(0, after(1));
        assert_eq!(ids.take(after(1)), Some(1));
        assert_eq!(ids.take(after(1)), None, "0 is in quarantine");
        assert!(ids.has_quarantined());
        assert_eq!(ids.take(after(2)), Some(0));
        assert_eq!(ids.used(), 2);
    }

    #[test]
    fn ids_found_in_use_are_never_allocated() {
        let mut ids = Ids::new(6);
        for used in [0, 2, 4, 4] {
            ids.mark(used);
        }
        let mut taken: Vec<u32> = std::iter::from_fn(|| ids.take(after(1))).collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 3, 5]);
    }
}
