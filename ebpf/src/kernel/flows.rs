//! The flow tables: established connections, opening ones, and a filter over the sources of both.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap};
use dormouse_ebpf::flow::{FLOWS_MAX, Flow, FlowKey, OPENING as IS_OPENING, SEEN_STEP_NS};
use dormouse_ebpf::maps::{FLOW_FILTER_WORDS, flow_filter_bit};
use dormouse_ebpf::opening::opening_max;

use super::atomic;
use super::tables::read;

#[map(name = "flow_filter")]
static FLOW_FILTER: Array<u64> = Array::pinned(2 * FLOW_FILTER_WORDS + 1, BPF_F_MMAPABLE);
#[map(name = "flow")]
static FLOWS: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(FLOWS_MAX, 0);
/// Flows of connections that are not established yet.
#[map(name = "opening")]
static OPENING: LruHashMap<FlowKey, Flow> = LruHashMap::pinned(opening_max(FLOWS_MAX), 0);

/// Looks up the flow of a packet. Most packets have none, and the Bloom filter over flows' sources spares most of those the
/// lookup.
#[inline(always)]
pub(crate) fn find(key: &FlowKey) -> Option<*mut Flow> {
    let (word, bit) = flow_filter_bit(&key.source);
    let active = FLOW_FILTER.get_ptr(2 * FLOW_FILTER_WORDS).map_or(0, read) as u32 & 1;
    let word = FLOW_FILTER.get_ptr(active * FLOW_FILTER_WORDS + word)?;
    if read(word) & bit == 0 {
        return None;
    }
    if let Some(flow) = FLOWS.get_ptr_mut(key) {
        return Some(flow);
    }
    let flow = opening_flow(key);
    (!flow.is_null()).then_some(flow)
}

/// Looks up a flow that is opening, or has just become established: it is inserted into one table before it is removed from the
/// other. Null if there is none.
#[inline(never)]
fn opening_flow(key: &FlowKey) -> *mut Flow {
    if let Some(flow) = OPENING.get_ptr_mut(key) {
        return flow;
    }
    FLOWS.get_ptr_mut(key).unwrap_or(core::ptr::null_mut())
}

/// Looks up a flow among the established ones only.
#[inline(always)]
pub(crate) fn find_established(key: &FlowKey) -> Option<*mut Flow> {
    FLOWS.get_ptr_mut(key)
}

/// Inserts a flow, after its source into the filters, into the table that its kind names. False if the table is full, or, with
/// BPF_NOEXIST, if the key exists.
#[inline(never)]
pub(crate) fn insert(key: &FlowKey, flow: &Flow, flags: u32) -> bool {
    let (word, bit) = flow_filter_bit(&key.source);
    let mut filter = 0;
    while filter < 2 {
        if let Some(word) = FLOW_FILTER.get_ptr_mut(filter * FLOW_FILTER_WORDS + word)
            && read(word) & bit == 0
        {
            // SAFETY: an aligned word of a map value, which lives as long as the program runs.
            unsafe { atomic::set(word, bit) };
        }
        filter += 1;
    }
    if !flow.is(IS_OPENING) {
        return FLOWS.insert(key, flow, u64::from(flags)).is_ok();
    }
    // One of an earlier connection would be found first.
    let is_replaced = FLOWS.get_ptr(key).is_some();
    if is_replaced && flags == BPF_NOEXIST {
        return false;
    }
    let inserted = OPENING.insert(key, flow, u64::from(flags)).is_ok();
    if inserted && is_replaced {
        remove_established(key);
    }
    inserted
}

/// Removes a flow, if it exists.
#[inline(never)]
pub(crate) fn remove(key: &FlowKey) {
    remove_opening(key);
    remove_established(key);
}

/// Removes a flow from the established ones.
#[inline(always)]
pub(crate) fn remove_established(key: &FlowKey) {
    let _ = FLOWS.remove(key);
}

/// Removes a flow from the opening ones.
#[inline(always)]
pub(crate) fn remove_opening(key: &FlowKey) {
    let _ = OPENING.remove(key);
}

/// Keeps the flow from being removed as idle. True once in a [`SEEN_STEP_NS`]. `now_ns` is CLOCK_BOOTTIME.
#[inline(always)]
pub(crate) fn refresh(flow: *mut Flow, now_ns: u64) -> bool {
    // SAFETY: an aligned word of a map value; a lost update costs a step of freshness.
    unsafe {
        let seen = &raw mut (*flow).seen_ns;
        if now_ns.saturating_sub(seen.read_volatile()) <= SEEN_STEP_NS {
            return false;
        }
        seen.write_volatile(now_ns);
    }
    true
}
