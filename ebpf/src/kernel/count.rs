//! Counts of a VIP's connections to pods, with the time they last: see [`Counts`].

use dormouse_ebpf::counts::Counts;
use dormouse_ebpf::flow::{COUNTED, Flow, LOADED};

use super::{atomic, clock, load, tables};

/// Counts a connection that connect(2) has opened.
#[inline(always)]
pub(crate) fn socket_opened(vip: u32) {
    change(vip, 1, opened);
}

/// Counts the end of a socket's connection.
#[inline(always)]
pub(crate) fn socket_closed(vip: u32) {
    change(vip, u64::MAX, closed);
}

/// Counts the end of a flow, once: the first program that swaps `open` to 0 counts it.
#[inline(always)]
pub(crate) fn flow_closed(flow: *mut Flow) {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let was = unsafe { atomic::swap(&raw mut (*flow).open, 0) };
    // SAFETY: as above; these fields never change.
    let (slot, backend, generation) =
        unsafe { ((*flow).slot, (*flow).backend, (*flow).generation) };
    if was & COUNTED != 0 {
        change(slot, 0, closed);
    }
    if was & LOADED != 0 {
        load::flow_ended(backend, generation);
    }
}

/// Counts the begin of a flow in the counters of `open`, once however often the client repeats its first packet.
#[inline(always)]
pub(crate) fn flow_opened(flow: *mut Flow, open: u64) {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let was = unsafe { atomic::swap(&raw mut (*flow).open, open) };
    // SAFETY: as above; these fields never change.
    let (slot, backend) = unsafe { ((*flow).slot, (*flow).backend) };
    let new = open & !was;
    if new & COUNTED != 0 {
        change(slot, 0, opened);
    }
    if new & LOADED != 0 {
        load::flow_begun(backend);
    }
}

/// Moves what a flow is open in to the entry that takes its place. If a repeated first packet has opened that one meanwhile, it
/// has counted the flow twice.
#[inline(always)]
pub(crate) fn flow_moved(from: *mut Flow, to: *mut Flow) {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let open = unsafe { atomic::swap(&raw mut (*from).open, 0) } & (COUNTED | LOADED);
    if open == 0 {
        return;
    }
    // SAFETY: as above.
    if unsafe { atomic::swap(&raw mut (*to).open, open) } != 0 {
        flow_closed(to);
        // SAFETY: as above.
        unsafe { atomic::swap(&raw mut (*to).open, open) };
    }
}

#[inline(always)]
fn opened(counts: *mut Counts) -> (*mut u64, *mut u64) {
    // SAFETY: fields of one map value.
    unsafe { (&raw mut (*counts).opened, &raw mut (*counts).opened_ns) }
}

#[inline(always)]
fn closed(counts: *mut Counts) -> (*mut u64, *mut u64) {
    // SAFETY: fields of one map value.
    unsafe { (&raw mut (*counts).closed, &raw mut (*counts).closed_ns) }
}

/// `begun` first and `done` last, so that the agent can detect a copy that was taken in between. `sockets` wraps.
#[inline(always)]
fn change(vip: u32, sockets: u64, fields: impl FnOnce(*mut Counts) -> (*mut u64, *mut u64)) {
    let Some(counts) = tables::COUNTS.get_ptr_mut(&vip) else {
        return;
    };
    // SAFETY: fields of one map value.
    let (begun, done) = unsafe { (&raw mut (*counts).begun, &raw mut (*counts).done) };
    let (count, sum_ns) = fields(counts);
    tables::add(begun, 1);
    tables::add(count, 1);
    tables::add(sum_ns, clock::now_ns());
    if sockets != 0 {
        // SAFETY: a field of the same map value.
        tables::add(unsafe { &raw mut (*counts).sockets }, sockets);
    }
    tables::add(done, 1);
}
