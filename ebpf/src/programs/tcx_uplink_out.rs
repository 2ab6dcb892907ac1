//! Egress of the uplink: reverse NAT of replies; packets to unallocated service addresses are dropped. Minimum kernel: 6.6
//! (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

use crate::kernel::egress::{may_need_reverse_nat, out};
use crate::kernel::nat::parse;
use crate::kernel::tables;
use crate::kernel::transmit::NEXT;

#[classifier]
fn tcx_uplink_out(ctx: TcContext) -> i32 {
    if !may_need_reverse_nat(&ctx) {
        return NEXT;
    }
    let Some(scratch) = tables::scratch(tables::LEAVING) else {
        return NEXT;
    };
    let found = parse(&ctx, scratch);
    out(&ctx, scratch, found)
}
