//! Numbers of a range that are taken. Pure.

use std::collections::BTreeSet;
use std::ops::Range;

/// The numbers of a range that are taken, and the choice of a free one.
#[derive(Debug)]
pub(crate) struct Pool {
    range: Range<u32>,
    /// Numbers below are given last: users choose theirs among them.
    chosen_below: u32,
    taken: BTreeSet<u32>,
}

/// Why a number cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Outside,
    Taken,
}

impl Pool {
    /// A pool of which nothing is taken; its first `chosen` numbers are left to users while there are others.
    pub(crate) fn new(range: Range<u32>, chosen: u32) -> Self {
        let chosen_below = range.end.min(range.start.saturating_add(chosen));
        Self {
            range,
            chosen_below,
            taken: BTreeSet::new(),
        }
    }

    /// Takes this number.
    pub(crate) fn take(&mut self, number: u32) -> Result<(), Refused> {
        if !self.range.contains(&number) {
            return Err(Refused::Outside);
        }
        if self.taken.insert(number) {
            Ok(())
        } else {
            Err(Refused::Taken)
        }
    }

    /// Takes the first free number after one that `random` chooses, so that a freed one is seldom given again soon: clients
    /// may have it in a cache.
    pub(crate) fn draw(&mut self, random: u32) -> Option<u32> {
        let Range { start, end } = self.range;
        let parts = [self.chosen_below..end, start..self.chosen_below];
        let found = parts.into_iter().find_map(|part| {
            let length = part
                .end
                .checked_sub(part.start)
                .filter(|length| *length > 0)?;
            let from = part.start + random % length;
            let free = self.free(from..part.end);
            free.or_else(|| self.free(part.start..from))
        })?;
        self.taken.insert(found);
        Some(found)
    }

    /// Frees a number.
    pub(crate) fn free_again(&mut self, number: u32) {
        self.taken.remove(&number);
    }

    fn free(&self, part: Range<u32>) -> Option<u32> {
        let mut candidate = part.start;
        for taken in self.taken.range(part.clone()) {
            if *taken != candidate {
                break;
            }
            candidate += 1;
        }
        part.contains(&candidate).then_some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_number_is_given_twice_and_none_is_lost(
            steps in prop::collection::vec((0_u32..3, any::<u32>()), 0..200)
        ) {
            let (mut pool, mut model) = (Pool::new(10..30, 4), BTreeSet::new());
            for (step, random) in steps {
                let number = random % 40;
                match step {
                    0 => {
                        let want = match (number, model.contains(&number)) {
                            (10..30, false) => Ok(()),
                            (10..30, true) => Err(Refused::Taken),
                            _ => Err(Refused::Outside),
                        };
                        prop_assert_eq!(pool.take(number), want);
                        if want.is_ok() {
                            model.insert(number);
                        }
                    }
                    1 => match pool.draw(random) {
                        None => prop_assert_eq!(model.len(), 20),
                        Some(drawn) => {
                            prop_assert!((10..30).contains(&drawn) && model.insert(drawn));
                            let upper_is_full = (14..30).all(|one| model.contains(&one));
                            prop_assert!(drawn >= 14 || upper_is_full);
                        }
                    },
                    _ => {
                        pool.free_again(number);
                        model.remove(&number);
                    }
                }
            }
        }
    }
}
