//! Egress of the uplink: reverse NAT of replies; packets to unallocated service addresses are dropped, and packets to external
//! ones that came from the router. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::egress::{may_need_reverse_nat, out, returns_to_router};
use crate::kernel::nat::parse;
use crate::kernel::scratch::{self, Scratch};
use crate::kernel::transmit::{NEXT, dropped};

#[classifier]
fn tcx_uplink_out(ctx: TcContext) -> i32 {
    run(&ctx)
}

#[inline(always)]
pub(super) fn run(ctx: &TcContext) -> i32 {
    if returns_to_router(ctx) {
        return dropped(Verdict::DroppedReturned, NO_SLOT);
    }
    if !may_need_reverse_nat(ctx) {
        return NEXT;
    }
    let Some(scratch) = Scratch::of(scratch::LEAVING) else {
        return NEXT;
    };
    let found = parse(ctx, scratch);
    out(ctx, scratch, found)
}
