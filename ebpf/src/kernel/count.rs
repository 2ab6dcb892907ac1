//! Counts connections that go straight to a pod, and the time they last.

use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::Flow;

use super::{atomic, tables};

/// A connection was opened.
#[inline(always)]
pub(crate) fn opened(vip: u32) {
    change(vip, |counts| {
        // SAFETY: fields of one map value.
        unsafe { (&raw mut (*counts).opened, &raw mut (*counts).opened_ns) }
    });
}

/// A connection was closed.
#[inline(always)]
pub(crate) fn closed(vip: u32) {
    change(vip, |counts| {
        // SAFETY: fields of one map value.
        unsafe { (&raw mut (*counts).closed, &raw mut (*counts).closed_ns) }
    });
}

/// A flow's connection was closed: counted once, whoever sees it first.
#[inline(always)]
pub(crate) fn flow_closed(flow: *mut Flow) {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let (open, slot) = unsafe { (atomic::swap(&raw mut (*flow).open, 0), (*flow).slot) };
    if open == 1 {
        closed(slot);
    }
}

/// A flow's connection was opened: counted once however often the client asks.
#[inline(always)]
pub(crate) fn flow_opened(flow: *mut Flow) {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let (open, slot) = unsafe { (atomic::swap(&raw mut (*flow).open, 1), (*flow).slot) };
    if open == 0 {
        opened(slot);
    }
}

/// `begun` first and `done` last, so that the agent can tell a copy that was taken in between.
#[inline(always)]
fn change(vip: u32, fields: impl FnOnce(*mut Counts) -> (*mut u64, *mut u64)) {
    let Some(counts) = tables::COUNTS.get_ptr_mut(&vip) else {
        return;
    };
    // SAFETY: fields of one map value.
    let (begun, done) = unsafe { (&raw mut (*counts).begun, &raw mut (*counts).done) };
    let (count, sum_ns) = fields(counts);
    tables::add(begun, 1);
    tables::add(count, 1);
    tables::add(sum_ns, tables::now_ns());
    tables::add(done, 1);
}
