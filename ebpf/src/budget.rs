//! Token buckets, each a single word: the time at which it is full.

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Time for one token, in nanoseconds.
    pub interval_ns: u64,
    /// Tokens of a full bucket.
    pub burst: u64,
}

impl Budget {
    /// Takes a token from a bucket that is full at `full_at_ns`, and returns when it is full then; none: it is empty.
    #[inline(always)]
    pub const fn take(self, full_at_ns: u64, now_ns: u64) -> Option<u64> {
        let from_ns = if full_at_ns > now_ns {
            full_at_ns
        } else {
            now_ns
        };
        let full_at_ns = from_ns.wrapping_add(self.interval_ns);
        if full_at_ns - now_ns <= self.interval_ns * self.burst {
            Some(full_at_ns)
        } else {
            None
        }
    }
}
