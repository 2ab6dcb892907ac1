//! What leaves by the uplink: answers come from the VIP again, and nothing goes to addresses that only a service could
//! have. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

use crate::kernel::leaving::{is_unseen, out};
use crate::kernel::nat::look;
use crate::kernel::send::NEXT;
use crate::kernel::tables;

#[classifier]
fn tcx_uplink_out(ctx: TcContext) -> i32 {
    if !is_unseen(&ctx) {
        return NEXT;
    }
    let Some(scratch) = tables::scratch(tables::LEAVING) else {
        return NEXT;
    };
    let found = look(&ctx, scratch);
    out(&ctx, scratch, found)
}
