//! Packets of pods for which the host would have to look for a neighbour on the uplink's link: only so many a second are let through.
//! A pod that scans the link would fill the neighbour tables otherwise, and the node could reach no new neighbour.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::BPF_FIB_LOOKUP_OUTPUT;
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::neighbors::{KNOWN_TICKS, Known, OF_NODE, OF_POD, place, words};
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::verdict::Verdict;

use super::host_route::{self, Route};
use super::pod_link::link_of;
use super::transmit::{NEXT, dropped};
use super::{clock, tables};

/// There is a route, and no resolved neighbour (`BPF_FIB_LKUP_RET_NO_NEIGH`).
pub(crate) const NO_NEIGHBOR: i64 = 7;
/// The key of the bucket that all pods share; no link has this index.
const NODE: u32 = 0;

/// Leaves a packet of a pod to the host, unless it needs a new neighbour and the pod, or all pods, have looked for too many.
#[inline(never)]
pub(crate) fn leave(ctx: &TcContext, packet: &Packet) -> i32 {
    let Some(known) = known_at(packet) else {
        return NEXT;
    };
    if is_known(known, packet) {
        return NEXT;
    }
    if !needs_neighbor(ctx, packet) {
        remember(known, packet);
        return NEXT;
    }
    if may_look_for_one(ctx) {
        NEXT
    } else {
        refused()
    }
}

/// The verdict for a packet of a pod that has looked for too many neighbours.
#[inline(always)]
pub(crate) fn refused() -> i32 {
    dropped(Verdict::DroppedNeighbor, NO_SLOT)
}

/// The place of the packet's destination among those that are remembered.
#[inline(always)]
pub(crate) fn known_at(packet: &Packet) -> Option<&'static mut Known> {
    let known = tables::KNOWN.get_ptr_mut(place(&words(&packet.target)))?;
    // SAFETY: this CPU's own value, which only this program uses, once at a time.
    Some(unsafe { &mut *known })
}

/// Whether the packet's destination needed no new neighbour a moment ago.
#[inline(always)]
pub(crate) fn is_known(known: &Known, packet: &Packet) -> bool {
    known.address == words(&packet.target) && known.until_ticks > clock::now_ticks()
}

/// Remembers that the packet's destination needs no new neighbour.
#[inline(always)]
pub(crate) fn remember(known: &mut Known, packet: &Packet) {
    known.address = words(&packet.target);
    known.until_ticks = clock::now_ticks() + KNOWN_TICKS;
}

/// Whether the packet's next hop on the uplink has no link-layer address yet.
#[inline(always)]
fn needs_neighbor(ctx: &TcContext, packet: &Packet) -> bool {
    let Some(config) = tables::config() else {
        return false;
    };
    let mut room = MaybeUninit::uninit();
    let ends = (&packet.source, &packet.target);
    let route = host_route::lookup(&mut room, packet.v4 == 1, ends, config.uplink);
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // As for a packet that leaves by the uplink, whatever the pod's link is part of.
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    (unsafe { bpf_fib_lookup(skb, &raw mut *route, size, BPF_FIB_LOOKUP_OUTPUT) }) == NO_NEIGHBOR
}

/// Takes a token of the pod that sent the packet and one of all pods; false if there is none. Two processors may take the same one:
/// the limit is not exact.
#[inline(always)]
pub(crate) fn may_look_for_one(ctx: &TcContext) -> bool {
    let (link, now_ns) = (link_of(ctx), clock::now_ns());
    let full_at_ns = |key: u32| {
        // SAFETY: the value is copied out, a single word.
        unsafe { tables::NEIGHBOR_BUDGETS.get(&key) }
            .copied()
            .unwrap_or(0)
    };
    let Some(of_pod) = OF_POD.take(full_at_ns(link), now_ns) else {
        return false;
    };
    let Some(of_node) = OF_NODE.take(full_at_ns(NODE), now_ns) else {
        return false;
    };
    let _ = tables::NEIGHBOR_BUDGETS.insert(&link, &of_pod, 0);
    let _ = tables::NEIGHBOR_BUDGETS.insert(&NODE, &of_node, 0);
    true
}
