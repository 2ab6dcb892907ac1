//! The limit of wakes by source: see [`dormouse_ebpf::wake_limit`].

use aya_ebpf::bindings::BPF_NOEXIST;
use dormouse_ebpf::budget::Budget;
use dormouse_ebpf::wake_limit::WakeSource;

use super::{atomic, tables};

/// Tries to take a token while other processors take some of the same bucket.
const TRIES: u32 = 8;

/// Takes a token of the source; false if it has none. `address` is the sender's, as far as it is known.
#[inline(never)]
pub(crate) fn admits(address: &[u8; 16], kind: u64, id: u64) -> bool {
    let Some(limit) = tables::wake_limit() else {
        return true;
    };
    let Some(budget) = limit.budget() else {
        return true;
    };
    if limit.trusts(address) {
        return true;
    }
    let (source, now_ns) = (WakeSource { kind, id }, tables::now_ns());
    if let Some(bucket) = tables::WAKE_BUDGETS.get_ptr_mut(&source) {
        return take(bucket, budget, now_ns);
    }
    let Some(first) = budget.take(0, now_ns) else {
        return false;
    };
    if tables::WAKE_BUDGETS
        .insert(&source, &first, BPF_NOEXIST.into())
        .is_ok()
    {
        return true;
    }
    // Another processor has made the bucket meanwhile.
    let bucket = tables::WAKE_BUDGETS.get_ptr_mut(&source);
    bucket.is_some_and(|bucket| take(bucket, budget, now_ns))
}

/// Takes a token of a bucket; of two processors that take the same one, one tries again.
#[inline(always)]
fn take(bucket: *mut u64, budget: Budget, now_ns: u64) -> bool {
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
