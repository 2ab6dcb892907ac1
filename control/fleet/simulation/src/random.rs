//! The randomness of a run, all of it from its seed.

use std::time::Duration;

/// xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The randomness of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    /// Whether something happens that happens once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A period below `ms` milliseconds.
    pub fn period(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.below(ms))
    }

    /// An index into a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        let below = self.below(u64::try_from(length).unwrap_or(u64::MAX));
        usize::try_from(below).unwrap_or(0)
    }
}
