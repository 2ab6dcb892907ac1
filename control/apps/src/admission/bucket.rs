//! A token bucket: a rate with a burst of one second.

use std::time::Duration;

use dormouse_fleet::Boottime;

/// The capacity of a bucket, as time in which it fills.
const BURST: Duration = Duration::from_secs(1);
const BURST_NS: u64 = 1_000_000_000;

/// Tokens that arrive at a steady rate. A new bucket is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The time at which the bucket is full again.
    full_at: Boottime,
}

impl Bucket {
    /// The time from which on a token is there, at this many tokens a second. 0: always.
    pub(super) fn ready_at(self, rate: u32) -> Boottime {
        match interval(rate) {
            0 => Boottime(0),
            interval => Boottime((self.full_at.0 + interval).saturating_sub(BURST_NS)),
        }
    }

    /// Takes a token, if one is there.
    pub(super) fn take(&mut self, rate: u32, now: Boottime) -> bool {
        if self.ready_at(rate) > now {
            return false;
        }
        self.full_at = Boottime(self.full_at.max(now).0 + interval(rate));
        true
    }

    /// Whether it is as good as new.
    pub(super) fn is_full(self, now: Boottime) -> bool {
        self.full_at <= now
    }
}

/// Nanoseconds from one token to the next; 0 without a limit.
fn interval(rate: u32) -> u64 {
    BURST_NS.checked_div(rate.into()).unwrap_or(0)
}

const _: () = assert!(BURST.as_nanos() == BURST_NS as u128);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_its_rate_from_then_on() {
        let (mut bucket, start) = (Bucket::default(), Boottime(5 * BURST_NS));
        let mut taken = |at| std::iter::from_fn(|| bucket.take(10, at).then_some(())).count();
        assert_eq!(taken(start), 10);
        assert_eq!(taken(start + Duration::from_millis(99)), 0);
        assert_eq!(taken(start + Duration::from_millis(100)), 1);
        assert_eq!(taken(start + Duration::from_millis(650)), 5);
        assert_eq!(taken(start + Duration::from_mins(1)), 10);
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let mut bucket = Bucket::default();
        assert!((0..1_000_000).all(|_| bucket.take(0, Boottime(1))));
        assert!(bucket.is_full(Boottime(1)));
    }

    proptest! {
        #[test]
        fn no_second_gives_more_than_burst_and_rate(
            rate in 1u32..5_000,
            gaps in prop::collection::vec(0u64..50_000_000, 1..2_000),
        ) {
            let (mut bucket, mut now, mut taken) = (Bucket::default(), BURST_NS, Vec::new());
            for gap in gaps {
                now += gap;
                if bucket.take(rate, Boottime(now)) {
                    taken.push(now);
                }
            }
            for (index, from) in taken.iter().enumerate() {
                let within = taken[index..].iter().take_while(|at| *at - from < BURST_NS).count();
                prop_assert!(within <= 2 * rate as usize, "{within} at a rate of {rate}");
            }
        }
    }
}
