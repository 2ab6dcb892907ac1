//! The choice of VIPs: a freed one is given again as late as possible, since a client may have the address of the deleted app in a
//! cache. Pure.

use std::collections::VecDeque;

use super::{VipIndex, VipRange, is_allocated, next_free};

/// Freed indexes whose order is known. A longer list would cost control memory; an index that was freed before them is an ordinary
/// free one, which follows when all others have been given.
const FREED_MAX: usize = 1 << 16;

/// The indexes that are in use, and the order in which the others are given: those after the one given last, then from the first of
/// all on, and when no other is left those that were freed, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Indexes that are claimed, given or freed, sorted.
    taken: Vec<VipIndex>,
    /// Freed indexes, in the order in which they were.
    freed: VecDeque<VipIndex>,
    /// The index that was given last.
    last: Option<VipIndex>,
}

impl Pool {
    /// The pool without these indexes, sorted, of which `last` was given last.
    pub(crate) fn new(claimed: Vec<VipIndex>, last: Option<VipIndex>) -> Self {
        Self {
            taken: claimed,
            freed: VecDeque::new(),
            last,
        }
    }

    /// Gives an index, which is taken from now on; `None` if all are.
    pub(crate) fn draw(&mut self, ranges: &[VipRange]) -> Option<VipIndex> {
        let free = next_free(ranges, &self.taken, self.last);
        let index = free.or_else(|| self.freed.pop_front())?;
        self.insert(index);
        self.last = Some(index);
        Some(index)
    }

    /// Takes back an index that was given and not used.
    pub(crate) fn put_back(&mut self, index: VipIndex) {
        if let Ok(at) = self.taken.binary_search(&index) {
            self.taken.remove(at);
        }
    }

    /// Takes an index that an app has claimed by its manifest.
    pub(crate) fn claim(&mut self, index: VipIndex) {
        self.insert(index);
        self.freed.retain(|freed| *freed != index);
    }

    /// Frees the index of a deleted app.
    pub(crate) fn free(&mut self, ranges: &[VipRange], index: VipIndex) {
        if !is_allocated(ranges, index) {
            return self.put_back(index);
        }
        self.claim(index);
        self.freed.push_back(index);
        if self.freed.len() > FREED_MAX
            && let Some(oldest) = self.freed.pop_front()
        {
            self.put_back(oldest);
        }
    }

    fn insert(&mut self, index: VipIndex) {
        if let Err(at) = self.taken.binary_search(&index) {
            self.taken.insert(at, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Ranges of which 32 indexes are given: 16 to 31, and 48 to 63.
    fn ranges() -> [VipRange; 2] {
        ["fd00:b::/123@32", "fd00:a::/123"].map(|range| range.parse().unwrap())
    }

    /// The rule, without regard to cost.
    #[derive(Default)]
    struct Model {
        claimed: BTreeSet<u32>,
        freed: Vec<u32>,
        last: u32,
    }

    impl Model {
        fn draw(&mut self) -> Option<u32> {
            let all = (16..32).chain(48..64);
            let free = |index: &u32| !self.claimed.contains(index) && !self.freed.contains(index);
            let (before, after): (Vec<u32>, Vec<u32>) =
                all.filter(free).partition(|index| *index <= self.last);
            let never = after.into_iter().chain(before).next();
            let index = never.or_else(|| self.freed.first().copied())?;
            self.claim(index);
            self.last = index;
            Some(index)
        }

        fn claim(&mut self, index: u32) {
            self.freed.retain(|freed| *freed != index);
            self.claimed.insert(index);
        }

        fn free(&mut self, index: u32) {
            let is_given = (16..32).contains(&index) || (48..64).contains(&index);
            if self.claimed.remove(&index) && is_given {
                self.freed.push(index);
            }
        }

        fn pool(&self) -> Pool {
            let claimed = self.claimed.iter().copied().map(VipIndex).collect();
            Pool::new(claimed, Some(VipIndex(self.last)))
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Draw,
        DrawInVain,
        Claim(u32),
        Free(u32),
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => Just(Step::Draw),
            1 => Just(Step::DrawInVain),
            1 => (0u32..64).prop_map(Step::Claim),
            6 => (0u32..64).prop_map(Step::Free),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn a_freed_index_is_given_when_no_other_is_left_that_was_free_for_longer(
            steps in prop::collection::vec(step(), 0..200)
        ) {
            let (ranges, mut model, mut pool) = (ranges(), Model::default(), Pool::default());
            for step in steps {
                match step {
                    Step::Draw => {
                        let drawn = pool.draw(&ranges);
                        prop_assert_eq!(drawn.map(|index| index.0), model.draw());
                    }
                    Step::DrawInVain => {
                        if let Some(index) = pool.draw(&ranges) {
                            pool.put_back(index);
                            prop_assert_eq!(Some(index.0), model.draw());
                            model.claimed.remove(&index.0);
                        }
                    }
                    Step::Claim(index) => {
                        pool.claim(VipIndex(index));
                        model.claim(index);
                    }
                    Step::Free(index) if model.claimed.contains(&index) => {
                        pool.free(&ranges, VipIndex(index));
                        model.free(index);
                    }
                    Step::Free(_) => {}
                    // What was freed is free as any other; the last one given is still known.
                    Step::Restart => {
                        model.freed.clear();
                        pool = model.pool();
                    }
                }
            }
        }
    }

    #[test]
    fn a_freed_index_is_given_after_all_others() {
        let (ranges, mut pool) = (ranges(), Pool::default());
        let first = pool.draw(&ranges).unwrap();
        pool.free(&ranges, first);
        let others: BTreeSet<_> = (0..31).filter_map(|_| pool.draw(&ranges)).collect();
        assert_eq!((others.len(), others.contains(&first)), (31, false));
        assert_eq!(
            (pool.draw(&ranges), pool.draw(&ranges)),
            (Some(first), None)
        );
    }

    #[test]
    fn after_a_restart_the_index_after_the_last_one_is_given() {
        let (ranges, mut pool) = (ranges(), Pool::default());
        let given: Vec<_> = (0..3).filter_map(|_| pool.draw(&ranges)).collect();
        let mut restarted = Pool::new(Vec::new(), given.last().copied());
        assert_eq!(restarted.draw(&ranges), Some(VipIndex(given[2].0 + 1)));
    }

    #[test]
    fn the_list_of_freed_indexes_is_bounded() {
        let range: VipRange = "fd00:a::/108".parse().unwrap();
        let all: Vec<_> = (16..range.size()).map(VipIndex).collect();
        let freed = all.iter().copied().take(FREED_MAX + 1);
        let mut pool = Pool::new(all.clone(), all.last().copied());
        freed.for_each(|index| pool.free(&[range], index));
        assert_eq!(pool.freed.len(), FREED_MAX);
        assert_eq!(pool.draw(&[range]), Some(all[0]));
    }
}
