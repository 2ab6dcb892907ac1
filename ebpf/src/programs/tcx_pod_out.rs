//! Egress to a pod's link: reverse NAT of replies from the node's own processes; the host's ICMP redirects to other pods are
//! dropped, because pods reach each other only by their router. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::ndp::is_redirect;

use crate::kernel::egress::{into_pod, may_need_reverse_nat};
use crate::kernel::nat::parse;
use crate::kernel::scratch::{self, Scratch};
use crate::kernel::skb::frame;
use crate::kernel::transmit::{DROP, NEXT};

#[classifier]
fn tcx_pod_out(ctx: TcContext) -> i32 {
    run(&ctx)
}

#[inline(always)]
pub(super) fn run(ctx: &TcContext) -> i32 {
    if is_own(ctx) && is_redirect(&frame(ctx)) {
        return DROP;
    }
    if !may_need_reverse_nat(ctx) {
        return NEXT;
    }
    let Some(scratch) = Scratch::of(scratch::LEAVING) else {
        return NEXT;
    };
    let found = parse(ctx, scratch);
    into_pod(ctx, scratch, found)
}

/// Whether the node itself sends the packet: it has no ingress interface.
#[inline(always)]
fn is_own(ctx: &TcContext) -> bool {
    // SAFETY: a field of the context.
    unsafe { (*ctx.skb.skb).ingress_ifindex == 0 }
}
