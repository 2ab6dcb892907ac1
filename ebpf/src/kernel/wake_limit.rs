//! The limit of wakes by source: see [`dormouse_ebpf::wake_limit`].

use aya_ebpf::bindings::BPF_NOEXIST;
use dormouse_ebpf::wake_limit::WakeSource;

use super::budget::take;
use super::{clock, tables};

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
    let (source, now_ns) = (WakeSource { kind, id }, clock::now_ns());
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
