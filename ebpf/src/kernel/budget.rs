//! Token buckets that processors share: see [`dormouse_ebpf::budget`].

use dormouse_ebpf::budget::Budget;

use super::{atomic, tables};

/// Tries to take a token while other processors take some of the same bucket.
const TRIES: u32 = 8;

/// Takes a token of a bucket; of two processors that take the same one, one tries again.
#[inline(always)]
pub(crate) fn take(bucket: *mut u64, budget: Budget, now_ns: u64) -> bool {
    let mut tries = 0;
    while tries < TRIES {
        let before = tables::read(bucket);
        let Some(after) = budget.take(before, now_ns) else {
            return false;
        };
        // SAFETY: an aligned word of a map value, which lives as long as the program runs.
        if unsafe { atomic::replace(bucket, before, after) } {
            return true;
        }
        tries += 1;
    }
    false
}
