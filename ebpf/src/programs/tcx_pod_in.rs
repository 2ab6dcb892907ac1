//! Ingress of a pod's link: DNAT of packets that bypassed the socket hooks, reverse NAT of replies, and anti-spoofing.
//! Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::{NO_SLOT, Pod};
use dormouse_ebpf::ndp::{is_link_local, pod_may_say};
use dormouse_ebpf::packet::{ICMPV6, Packet, Read};
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::env::Hook;
use crate::kernel::nat::{handle, parse};
use crate::kernel::skb::{frame, is_of_vlan};
use crate::kernel::tables;
use crate::kernel::transmit::{NEXT, dropped};

#[classifier]
fn tcx_pod_in(ctx: TcContext) -> i32 {
    let Some(scratch) = tables::scratch(tables::ARRIVING) else {
        return NEXT;
    };
    // Pods are in no VLAN.
    if is_of_vlan(ctx.skb.skb) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    let found = parse(&ctx, scratch);
    let sender = owner(&ctx, &scratch.packet.source);
    if !is_own(found, &scratch.packet, sender) || !is_honest(&ctx, found, &scratch.packet) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    scratch.direct = sender.map_or(0, |pod| pod.direct.into());
    handle(&ctx, scratch, found, Hook::Pod)
}

/// Whether the source address is one of the sending pod's. Frames without an IP header are not checked.
#[inline(always)]
fn is_own(found: Read, packet: &Packet, sender: Option<&Pod>) -> bool {
    let unspecified = packet.source == [0; 16];
    // Neighbour discovery uses such addresses; connections do not cross the link with them.
    if is_link_local(&packet.source) || unspecified {
        return matches!(found, Read::Other);
    }
    sender.is_some()
}

/// Whether an NDP message is allowed: a pod advertises only its own addresses, and never acts as a router.
#[inline(always)]
fn is_honest(ctx: &TcContext, found: Read, packet: &Packet) -> bool {
    if !matches!(found, Read::Other) || packet.v4 == 1 || packet.protocol != ICMPV6 {
        return true;
    }
    pod_may_say(&frame(ctx), packet.l4 as usize, |target| {
        owner(ctx, target).is_some()
    })
}

/// The pod behind this link, if the address is one of its own.
#[inline(always)]
fn owner(ctx: &TcContext, address: &[u8; 16]) -> Option<&'static Pod> {
    // SAFETY: a field of the context.
    let interface = unsafe { (*ctx.skb.skb).ifindex };
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let pod = unsafe { &*tables::PODS.get_ptr(address)? };
    (pod.ifindex == interface).then_some(pod)
}
