//! Opening flows: moves both entries of a connection to the table of established ones.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::{FORWARDED, Flow, OPENING, TAKEN};
use dormouse_ebpf::opening::{expected, is_confirmed, may_confirm};
use dormouse_ebpf::packet::{Frame as _, UDP};
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::verdict::Verdict;

use super::clock::now_ns;
use super::count;
use super::established::{is_reply, opposite};
use super::scratch::Scratch;
use super::skb::frame;
use super::{flows, verdicts};

/// Offsets of TCP's sequence and acknowledgement numbers in its header.
const SEQUENCE: usize = 4;
const ACKNOWLEDGED: usize = 8;

/// The entry of a packet's flow from this packet on: another one, if the packet establishes its connection.
#[inline(always)]
pub(crate) fn advance(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow) -> *mut Flow {
    if !is_opening(flow) {
        return flow;
    }
    let moved = advance_opening(ctx, scratch, flow);
    if moved.is_null() { flow } else { moved }
}

/// The new entry of a flow whose connection the packet establishes; else null.
#[inline(never)]
fn advance_opening(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow) -> *mut Flow {
    let other = if is_reply(flow) {
        answered(ctx, scratch, flow)
    } else {
        confirmed(ctx, scratch, flow)
    };
    match other {
        Some(other) => establish(scratch, flow, other),
        None => core::ptr::null_mut(),
    }
}

/// The client's flow, if the backend's packet establishes the connection. The sequence number of its SYN is recorded.
#[inline(always)]
fn answered(ctx: &TcContext, scratch: &mut Scratch, reply: *mut Flow) -> Option<*mut Flow> {
    if scratch.packet.accepts() {
        let sequence = number(ctx, scratch, SEQUENCE)?;
        // SAFETY: an aligned word of a map value, which lives as long as the program runs. A port that is taken meanwhile
        // has its reply flow replaced.
        unsafe {
            let open = &raw mut (*reply).open;
            open.write_volatile(open.read_volatile() & TAKEN | expected(sequence));
        }
    }
    if scratch.packet.protocol != UDP {
        return None;
    }
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    scratch.back = scratch.key.reply(unsafe { &*reply });
    let client = flows::find(&scratch.back)?;
    (is_opening(client) && !is_reply(client)).then_some(client)
}

/// The reply flow, if the client's packet establishes the connection; the flow itself, if it has none.
#[inline(always)]
fn confirmed(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow) -> Option<*mut Flow> {
    if !may_confirm(&scratch.packet) {
        return None;
    }
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    if unsafe { (*flow).is(FORWARDED) } {
        return Some(flow);
    }
    let reply = opposite(scratch, flow)?;
    let acknowledged = if scratch.packet.acknowledges() {
        number(ctx, scratch, ACKNOWLEDGED)?
    } else {
        0
    };
    // SAFETY: aligned words of map values, which live as long as the program runs.
    let (stage, open) = unsafe {
        let client = Stage((&raw const (*flow).stage).read_volatile());
        let backend = Stage((&raw const (*reply).stage).read_volatile());
        (
            client.and(backend),
            (&raw const (*reply).open).read_volatile(),
        )
    };
    let is_own = open & TAKEN == 0;
    let established = scratch.packet.protocol != UDP && is_confirmed(stage, open, acknowledged);
    (is_own && established).then_some(reply)
}

/// A number of the packet's TCP header.
#[inline(always)]
fn number(ctx: &TcContext, scratch: &Scratch, at: usize) -> Option<u32> {
    let bytes = frame(ctx).load(scratch.packet.l4 as usize + at)?;
    Some(u32::from_be_bytes(bytes.0))
}

/// Moves both entries: the packet's, and `other`, whose key is `scratch.back`. They are in one of the tables at each moment.
/// Returns the packet's new entry; null, if there is no room for both.
#[inline(always)]
fn establish(scratch: &mut Scratch, flow: *mut Flow, other: *mut Flow) -> *mut Flow {
    // SAFETY: map values, which live as long as the program runs; what changes in them are single words.
    unsafe {
        scratch.flow = *flow;
        scratch.reply = *other;
    }
    let is_alone = scratch.flow.is(FORWARDED);
    for entry in [&mut scratch.flow, &mut scratch.reply] {
        entry.kind &= !OPENING;
        entry.open = 0;
        entry.seen_ns = now_ns();
    }
    let mut tries = 0;
    // The room for the second entry may be the first one's own.
    while tries < 2 {
        flows::insert(&scratch.key, &scratch.flow, BPF_NOEXIST);
        if !is_alone {
            flows::insert(&scratch.back, &scratch.reply, BPF_NOEXIST);
        }
        let new = flows::find_established(&scratch.key);
        if let Some(new) = new
            && is_alone
        {
            return moved(scratch, flow, new);
        }
        if let Some(new) = new
            && let Some(new_other) = flows::find_established(&scratch.back)
        {
            count::flow_moved(other, new_other);
            flows::remove_opening(&scratch.back);
            return moved(scratch, flow, new);
        }
        tries += 1;
    }
    flows::remove_established(&scratch.key);
    if !is_alone {
        flows::remove_established(&scratch.back);
    }
    core::ptr::null_mut()
}

#[inline(always)]
fn moved(scratch: &Scratch, flow: *mut Flow, new: *mut Flow) -> *mut Flow {
    count::flow_moved(flow, new);
    flows::remove_opening(&scratch.key);
    verdicts::note(Verdict::Established);
    new
}

#[inline(always)]
pub(crate) fn is_opening(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).is(OPENING) }
}
