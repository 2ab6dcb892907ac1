//! Lanes: the ranges of numbers from which suffixes are drawn. Each cohort has one, and all pods without a cohort share
//! one.
//!
//! A cohort has 1,023 numbers on a node; number 0 is never used. If all are leased or in quarantine, the node draws from
//! the cohort's aliases, in this order: `cohort + 2^20`, `cohort + 2·2^20`, `cohort + 3·2^20`. The top two bits of a
//! cohort are thus the alias and the other bits the cohort that was given to the pod, so one mask recovers it from an
//! address and the use of an alias need not be announced. For that reason pods may be given cohorts 1,024 to 2^20 - 1.

use std::ops::RangeInclusive;

use crate::prefix::{HOST_SUFFIXES, NUMBER_BITS, NodePrefix, Suffix};

/// Cohorts whose numbers form the lane of pods without a cohort.
pub const ANONYMOUS_COHORTS: RangeInclusive<u32> = 64..=1023;
/// Cohorts that a pod may be given.
pub const COHORTS: RangeInclusive<u32> = 1024..=(1 << ALIAS_SHIFT) - 1;
/// Number of aliases of each cohort.
pub const ALIASES: u32 = 3;
/// Limit of pods of one cohort on one node, with its aliases.
pub const COHORT_PODS_MAX: u32 = (ALIASES + 1) * NUMBERS;

/// Position of the alias in a cohort.
const ALIAS_SHIFT: u32 = 20;
/// Count of a cohort's numbers: all but 0.
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;
/// Longest prefix length that leaves 32 bits for cohort and number.
const COHORTS_LENGTH_MAX: u8 = 96;

const _: () = assert!(ALIAS_SHIFT + (ALIASES + 1).ilog2() + NUMBER_BITS == u32::BITS);
const _: () = assert!(HOST_SUFFIXES < 1 << NUMBER_BITS);

/// `count` consecutive numbers from `first` on; after the last one, drawing continues with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// Lowest number.
    pub first: u32,
    /// Count of numbers, at least 1.
    pub count: u32,
}

impl Lane {
    fn of_cohort(cohort: u32) -> Self {
        let first = Suffix::new(cohort, 1).0;
        Self {
            first,
            count: NUMBERS,
        }
    }
}

impl Suffix {
    /// The cohort that the pod was given, for an alias too.
    pub fn given_cohort(self) -> u32 {
        self.cohort() & ((1 << ALIAS_SHIFT) - 1)
    }
}

impl NodePrefix {
    /// Whether suffixes contain a cohort: the prefix length is at most 96.
    pub fn has_cohorts(self) -> bool {
        self.length() <= COHORTS_LENGTH_MAX
    }

    /// The lane of pods without a cohort.
    pub fn anonymous(self) -> Lane {
        let (first, last) = if self.has_cohorts() {
            let (first, last) = (*ANONYMOUS_COHORTS.start(), *ANONYMOUS_COHORTS.end());
            (Suffix::new(first, 0), Suffix::new(last, NUMBERS))
        } else {
            (Suffix(HOST_SUFFIXES), self.last())
        };
        Lane {
            first: first.0,
            count: last.0 - first.0 + 1,
        }
    }

    /// The lanes of one of the [`COHORTS`] and its aliases; each is used once the lanes before it are full.
    pub fn cohort_lanes(self, cohort: u32) -> impl Iterator<Item = Lane> {
        (0..=ALIASES).map(move |alias| Lane::of_cohort(cohort | alias << ALIAS_SHIFT))
    }

    /// The lane of a suffix; `None` for suffixes that are never drawn.
    pub fn lane_of(self, suffix: Suffix) -> Option<Lane> {
        let anonymous = self.anonymous();
        if (anonymous.first..=anonymous.first + (anonymous.count - 1)).contains(&suffix.0) {
            return Some(anonymous);
        }
        let of_cohort =
            self.has_cohorts() && COHORTS.contains(&suffix.given_cohort()) && suffix.number() != 0;
        of_cohort.then(|| Lane::of_cohort(suffix.cohort()))
    }

    /// Suffixes that any pod may request by address, with or without a cohort.
    pub fn requestable(self) -> RangeInclusive<u32> {
        let last = if self.has_cohorts() {
            Suffix::new(0, NUMBERS)
        } else {
            self.last()
        };
        HOST_SUFFIXES..=last.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> NodePrefix {
        text.parse().unwrap()
    }

    #[test]
    fn pods_without_a_cohort_have_cohorts_64_to_1023_or_all_of_a_narrow_prefix() {
        let lane = prefix("2001:db8::/96").anonymous();
        assert_eq!((lane.first, lane.count), (0x1_0000, 983_040));
        let lane = prefix("2001:db8::/120").anonymous();
        assert_eq!((lane.first, lane.count), (16, 240));
        let lane = prefix("2001:db8::/97").anonymous();
        assert_eq!((lane.first, lane.count), (16, (1 << 31) - 16));
    }

    #[test]
    fn a_cohort_has_three_aliases_that_contain_it_in_their_low_bits() {
        let lanes: Vec<_> = prefix("2001:db8::/64").cohort_lanes(5000).collect();
        let cohorts: Vec<_> = lanes.iter().map(|l| Suffix(l.first).cohort()).collect();
        assert_eq!(cohorts, [5000, 1_053_576, 2_102_152, 3_150_728]);
        for lane in lanes {
            assert_eq!((Suffix(lane.first).number(), lane.count), (1, 1023));
            assert_eq!(Suffix(lane.first).given_cohort(), 5000);
            assert_eq!(
                prefix("2001:db8::/64").lane_of(Suffix(lane.first)),
                Some(lane)
            );
        }
    }

    #[test]
    fn reserved_suffixes_belong_to_no_lane() {
        let prefix = prefix("2001:db8::/96");
        for (cohort, number) in [(0, 16), (63, 1), (1024, 0), ((1 << 20) + 64, 1)] {
            assert_eq!(
                prefix.lane_of(Suffix::new(cohort, number)),
                None,
                "{cohort} {number}"
            );
        }
        let last = Suffix(u32::MAX);
        assert_eq!(prefix.lane_of(last), Some(Lane::of_cohort(last.cohort())));
    }
}
