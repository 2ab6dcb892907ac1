//! The scale-down delay: a count may only go down once nothing higher was wanted for a while.

use std::collections::VecDeque;

use crate::number;

/// Seconds of one bucket; buckets begin at even seconds.
const BUCKET_S: i64 = 2;

/// The largest value of the last few buckets.
#[derive(Debug, Clone)]
pub struct Delay {
    buckets: i64,
    /// Bucket and value; both fall in strict order from front to back, so the front is the largest.
    falling: VecDeque<(i64, i32)>,
}

impl Delay {
    /// A delay of so many seconds.
    pub fn new(delay_s: u32) -> Self {
        Self {
            buckets: (i64::from(delay_s) + BUCKET_S - 1) / BUCKET_S,
            falling: VecDeque::new(),
        }
    }

    /// Notes a value and returns the largest one of the delay, this one included. A time before the newest bucket
    /// counts as that bucket: clocks that step back shorten no delay.
    pub fn record(&mut self, now_ms: i64, value: i32) -> i32 {
        let bucket = number::second(now_ms).div_euclid(BUCKET_S);
        let bucket = self
            .falling
            .back()
            .map_or(bucket, |&(newest, _)| bucket.max(newest));
        while self
            .falling
            .front()
            .is_some_and(|&(oldest, _)| bucket - oldest >= self.buckets)
        {
            self.falling.pop_front();
        }
        while self
            .falling
            .back()
            .is_some_and(|&(_, smaller)| smaller <= value)
        {
            self.falling.pop_back();
        }
        self.falling.push_back((bucket, value));
        self.falling.front().map_or(value, |&(_, largest)| largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_shortens_no_delay() {
        let mut delay = Delay::new(6);
        assert_eq!(delay.record(10_000, 5), 5);
        assert_eq!(delay.record(4_000, 3), 5);
        assert_eq!(delay.record(12_000, 1), 5);
        assert_eq!(delay.record(16_000, 1), 1);
    }
}
