//! What reaches a pod: a process of the node that answers has the name that the pod knows, and the node does not tell it
//! a shorter way to another pod, for there is none. Minimum kernel: 6.6 (TCX
//! links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::ndp::is_redirect;

use crate::kernel::leaving::{into_pod, is_unseen};
use crate::kernel::nat::look;
use crate::kernel::send::{DROP, NEXT};
use crate::kernel::skb::frame;
use crate::kernel::tables;

#[classifier]
fn tcx_pod_out(ctx: TcContext) -> i32 {
    if is_own(&ctx) && is_redirect(&frame(&ctx)) {
        return DROP;
    }
    if !is_unseen(&ctx) {
        return NEXT;
    }
    let Some(scratch) = tables::scratch(tables::LEAVING) else {
        return NEXT;
    };
    let found = look(&ctx, scratch);
    into_pod(&ctx, scratch, found)
}

/// The node itself sends it: it came in nowhere.
#[inline(always)]
fn is_own(ctx: &TcContext) -> bool {
    // SAFETY: a field of the context.
    unsafe { (*ctx.skb.skb).ingress_ifindex == 0 }
}
