//! Ingress of a pod's link: DNAT of packets that bypassed the socket hooks, reverse NAT of replies, and anti-spoofing.
//! Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::Read;
use dormouse_ebpf::pod_link::is_of_link;
use dormouse_ebpf::screen::invalid;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::env::Hook;
use crate::kernel::nat::{handle, parse};
use crate::kernel::neighbors::leave;
use crate::kernel::pod_link::{handle_on_link, link_of, pod_at};
use crate::kernel::scratch::{self, Scratch};
use crate::kernel::skb::is_of_vlan;
use crate::kernel::transmit::{NEXT, dropped};

#[classifier]
fn tcx_pod_in(ctx: TcContext) -> i32 {
    run(&ctx)
}

#[inline(always)]
pub(super) fn run(ctx: &TcContext) -> i32 {
    let Some(scratch) = Scratch::of(scratch::ARRIVING) else {
        return NEXT;
    };
    // Pods are in no VLAN.
    if is_of_vlan(ctx.skb.skb) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    let found = parse(ctx, scratch);
    let Some(pod) = pod_at(link_of(ctx), &scratch.packet.source) else {
        return handle_on_link(ctx, scratch, found);
    };
    if matches!(found, Read::Other) && is_of_link(&scratch.packet) {
        return handle_on_link(ctx, scratch, found);
    }
    if let Some(verdict) = invalid(found, &scratch.packet) {
        return dropped(verdict, NO_SLOT);
    }
    scratch.direct = pod.direct.into();
    match handle(ctx, scratch, found, Hook::Pod) {
        NEXT => leave(ctx, &scratch.packet),
        verdict => verdict,
    }
}
