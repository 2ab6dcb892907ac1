//! Packets of pods for which the host would have to look for a neighbour on the uplink's link: only so many a second are left to it.
//! A pod that scans the link would fill the neighbour tables otherwise, and the node could reach no new neighbour.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{BPF_FIB_LOOKUP_OUTPUT, bpf_fib_lookup as Route};
use aya_ebpf::helpers::generated::{bpf_fib_lookup, bpf_jiffies64};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::neighbors::{KNOWN_TICKS, Known, OF_NODE, OF_POD, place, words};
use dormouse_ebpf::packet::{Packet, v4_of};
use dormouse_ebpf::verdict::Verdict;

use super::pod_link::link_of;
use super::transmit::{AF_INET, AF_INET6, NEXT, dropped};
use super::words::zero;
use super::{rewrite, tables};

/// There is a route, and no resolved neighbour (`BPF_FIB_LKUP_RET_NO_NEIGH`).
const NO_NEIGHBOR: i64 = 7;
/// The key of the bucket that all pods share; no link has this index.
const NODE: u32 = 0;

/// Leaves a packet of a pod to the host, unless it needs a new neighbour and the pod, or all pods, have looked for too many.
#[inline(never)]
pub(crate) fn leave(ctx: &TcContext, packet: &Packet) -> i32 {
    let address = words(&packet.target);
    let Some(known) = tables::KNOWN.get_ptr_mut(place(&address)) else {
        return NEXT;
    };
    // SAFETY: this CPU's own value, which only this program uses, once at a time.
    let known = unsafe { &mut *known };
    // The verifier makes a load of it, while a clock is a call.
    // SAFETY: the helper takes nothing.
    let now_ticks = unsafe { bpf_jiffies64() };
    if known.address == address && known.until_ticks > now_ticks {
        return NEXT;
    }
    if !needs_neighbor(ctx, packet) {
        *known = Known {
            address,
            until_ticks: now_ticks + KNOWN_TICKS,
        };
        return NEXT;
    }
    if take(link_of(ctx), tables::now_ns()) {
        NEXT
    } else {
        dropped(Verdict::DroppedNeighbor, NO_SLOT)
    }
}

/// Whether the packet's next hop on the uplink has no link-layer address yet.
#[inline(always)]
fn needs_neighbor(ctx: &TcContext, packet: &Packet) -> bool {
    let Some(config) = tables::config() else {
        return false;
    };
    // SAFETY: all zero is a valid value of this plain struct.
    let mut route = MaybeUninit::uninit();
    let route: &mut Route = unsafe { zero(&mut route) };
    route.ifindex = config.uplink;
    if packet.v4 == 1 {
        route.family = AF_INET as u8;
        route.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(v4_of(&packet.source));
        route.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(v4_of(&packet.target));
    } else {
        route.family = AF_INET6 as u8;
        route.__bindgen_anon_3.ipv6_src = rewrite::words(&packet.source);
        route.__bindgen_anon_4.ipv6_dst = rewrite::words(&packet.target);
    }
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // As for a packet that leaves by the uplink, whatever the pod's link is part of.
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    (unsafe { bpf_fib_lookup(skb, &raw mut *route, size, BPF_FIB_LOOKUP_OUTPUT) }) == NO_NEIGHBOR
}

/// Takes a token of the pod and one of all pods; false if there is none. Two processors may take the same one: the limit is not exact.
#[inline(always)]
fn take(link: u32, now_ns: u64) -> bool {
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
