//! The map of [`dormouse_ebpf::found`].

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use dormouse_ebpf::flow::Flow;
use dormouse_ebpf::found::{FOUND_MAX, Found};

use super::clock::now_ticks;

/// Connections of which both entries were found a moment ago.
#[map(name = "found")]
static FOUND: PerCpuArray<u64> = PerCpuArray::with_max_entries(FOUND_MAX, 0);

/// Whether both entries of the connection were found in this while.
#[inline(always)]
pub(crate) fn recently(flow: &Flow) -> bool {
    let found = Found::of(flow, now_ticks());
    // SAFETY: this CPU's own word.
    let mark = FOUND.get_ptr(found.place).map(|mark| unsafe { *mark });
    mark == Some(found.mark)
}

/// Notes that both entries of the connection were found.
#[inline(always)]
pub(crate) fn note(flow: &Flow) {
    let found = Found::of(flow, now_ticks());
    if let Some(mark) = FOUND.get_ptr_mut(found.place) {
        // SAFETY: this CPU's own word.
        unsafe { *mark = found.mark };
    }
}
