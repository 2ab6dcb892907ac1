//! Hands out ids; one that was given back rests until no program in the kernel can still hold it.

use std::collections::{BTreeSet, VecDeque};

use super::grace::Moment;

/// Ids `0..max`. Time is counted in grace periods.
#[derive(Debug)]
pub(super) struct Ids {
    max: u32,
    next: u32,
    free: BTreeSet<u32>,
    /// When each was given back, oldest first.
    resting: VecDeque<(u64, u32)>,
}

impl Ids {
    /// All ids but those in use.
    pub(super) fn with_used(max: u32, used: &BTreeSet<u32>) -> Self {
        let next = used.last().map_or(0, |last| last + 1);
        let free = (0..next).filter(|id| !used.contains(id)).collect();
        Self {
            max,
            next,
            free,
            resting: VecDeque::new(),
        }
    }

    /// An id that nobody holds.
    pub(super) fn take(&mut self, now: Moment) -> Option<u32> {
        while let Some(&(since, id)) = self.resting.front()
            && since < now.over
        {
            self.resting.pop_front();
            self.free.insert(id);
        }
        self.free.pop_first().or_else(|| {
            let id = self.next;
            (id < self.max).then(|| {
                self.next += 1;
                id
            })
        })
    }

    /// Gives an id back.
    pub(super) fn rest(&mut self, id: u32, now: Moment) {
        self.resting.push_back((now.begun, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many periods, none under way.
    fn after(periods: u64) -> Moment {
        Moment {
            begun: periods,
            over: periods,
        }
    }

    #[test]
    fn an_id_given_back_rests_for_a_grace_period() {
        let mut ids = Ids::with_used(2, &BTreeSet::new());
        assert_eq!(ids.take(after(1)), Some(0));
        ids.rest(0, after(1));
        assert_eq!(ids.take(after(1)), Some(1));
        assert_eq!(ids.take(after(1)), None, "0 rests");
        assert_eq!(ids.take(after(2)), Some(0));
    }

    #[test]
    fn ids_found_in_use_are_never_handed_out() {
        let mut ids = Ids::with_used(6, &BTreeSet::from([0, 2, 4]));
        let taken: Vec<u32> = std::iter::from_fn(|| ids.take(after(1))).collect();
        assert_eq!(taken, [1, 3, 5]);
    }
}
