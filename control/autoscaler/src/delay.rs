//! The scale-down delay: the maximum of the desired scale over a time window.

use std::collections::VecDeque;

use crate::number;

/// Length of a bucket, seconds; buckets begin at even seconds.
const BUCKET_S: i64 = 2;

/// The maximum over a window of buckets.
#[derive(Debug, Clone)]
pub struct Delay {
    /// Length of the window, buckets.
    buckets: i64,
    /// Bucket and value. Buckets strictly increase and values strictly decrease, so the front is the maximum.
    maxima: VecDeque<(i64, i32)>,
}

impl Delay {
    /// A window of `delay_s` seconds.
    pub fn new(delay_s: u32) -> Self {
        Self {
            buckets: (i64::from(delay_s) + BUCKET_S - 1) / BUCKET_S,
            maxima: VecDeque::new(),
        }
    }

    /// Records a value; returns the maximum of the window with this value. A time before the newest bucket counts as
    /// that bucket, so a clock that steps back does not shorten the delay.
    pub fn record(&mut self, now_ms: i64, value: i32) -> i32 {
        let bucket = number::second(now_ms).div_euclid(BUCKET_S);
        let bucket = self
            .maxima
            .back()
            .map_or(bucket, |&(newest, _)| bucket.max(newest));
        while self
            .maxima
            .front()
            .is_some_and(|&(oldest, _)| bucket - oldest >= self.buckets)
        {
            self.maxima.pop_front();
        }
        while self
            .maxima
            .back()
            .is_some_and(|&(_, smaller)| smaller <= value)
        {
            self.maxima.pop_back();
        }
        self.maxima.push_back((bucket, value));
        self.maxima.front().map_or(value, |&(_, largest)| largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_does_not_shorten_the_delay() {
        let mut delay = Delay::new(6);
        assert_eq!(delay.record(10_000, 5), 5);
        assert_eq!(delay.record(4_000, 3), 5);
        assert_eq!(delay.record(12_000, 1), 5);
        assert_eq!(delay.record(16_000, 1), 1);
    }
}
