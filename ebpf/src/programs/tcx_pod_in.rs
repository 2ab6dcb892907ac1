//! What a pod sends: for what bypasses the socket hooks, and for the answers to what came so. Minimum kernel: 6.6 (TCX
//! links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::{NO_SLOT, Pod};
use dormouse_ebpf::ndp::{is_link_local, pod_may_say};
use dormouse_ebpf::packet::{ICMPV6, Packet, Read};
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::nat::{Way, handle, look};
use crate::kernel::send::{NEXT, dropped};
use crate::kernel::skb::{frame, is_of_vlan};
use crate::kernel::tables;

#[classifier]
fn tcx_pod_in(ctx: TcContext) -> i32 {
    let Some(scratch) = tables::scratch(tables::ARRIVING) else {
        return NEXT;
    };
    // Pods are in no VLAN.
    if is_of_vlan(ctx.skb.skb) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    let found = look(&ctx, scratch);
    let sender = owner(&ctx, &scratch.packet.source);
    if !is_own(found, &scratch.packet, sender) || !is_honest(&ctx, found, &scratch.packet) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    scratch.direct = sender.map_or(0, |pod| pod.direct.into());
    handle(&ctx, scratch, found, Way::Pod)
}

/// The packet comes from an address of the pod that sent it. Frames without an IP header are not judged.
#[inline(always)]
fn is_own(found: Read, packet: &Packet, sender: Option<&Pod>) -> bool {
    let unspecified = packet.source == [0; 16];
    // Neighbours speak IPv6 from such addresses; connections do not cross the link by them.
    if is_link_local(&packet.source) || unspecified {
        return matches!(found, Read::Other);
    }
    sender.is_some()
}

/// A pod speaks as a neighbour for itself only, and never as a router.
#[inline(always)]
fn is_honest(ctx: &TcContext, found: Read, packet: &Packet) -> bool {
    if !matches!(found, Read::Other) || packet.v4 == 1 || packet.protocol != ICMPV6 {
        return true;
    }
    pod_may_say(&frame(ctx), packet.l4 as usize, |target| {
        owner(ctx, target).is_some()
    })
}

/// The pod on this link, if the address is one of its own.
#[inline(always)]
fn owner(ctx: &TcContext, address: &[u8; 16]) -> Option<&'static Pod> {
    // SAFETY: a field of the context.
    let interface = unsafe { (*ctx.skb.skb).ifindex };
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let pod = unsafe { &*tables::PODS.get_ptr(address)? };
    (pod.ifindex == interface).then_some(pod)
}
