//! What became of packets: counters by verdict, and of drops also by slot.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{LruPerCpuHashMap, PerCpuArray};
use dormouse_ebpf::maps::{DROPS_MAX, DropKey};
use dormouse_ebpf::verdict::{VERDICTS_LEN, Verdict};

use super::tables::{add, read};

#[map(name = "stats")]
static STATS: PerCpuArray<u64> = PerCpuArray::pinned(VERDICTS_LEN, 0);
/// Rejected and dropped packets by slot and verdict.
#[map(name = "drops")]
static DROPS: LruPerCpuHashMap<DropKey, u64> = LruPerCpuHashMap::pinned(DROPS_MAX, 0);

/// Counts a verdict.
#[inline(always)]
pub(crate) fn note(verdict: Verdict) {
    if let Some(count) = STATS.get_ptr_mut(verdict as u32) {
        add(count, 1);
    }
}

/// How often this CPU has counted the verdict with a number.
#[inline(always)]
pub(crate) fn counted(number: u32) -> u64 {
    STATS.get_ptr_mut(number).map_or(0, |count| read(count))
}

/// Counts a verdict for a rejected or dropped packet, also by slot.
#[inline(always)]
pub(crate) fn note_drop(verdict: Verdict, slot: u32) {
    note(verdict);
    let key = DropKey {
        slot,
        verdict: verdict as u32,
    };
    if let Some(count) = DROPS.get_ptr_mut(&key) {
        add(count, 1);
    } else {
        let _ = DROPS.insert(&key, &1, 0);
    }
}
