//! What reaches a pod: a process of the node that answers has the name that the pod knows. Minimum kernel: 6.6 (TCX
//! links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

use crate::kernel::leaving::{into_pod, is_unseen};
use crate::kernel::nat::look;
use crate::kernel::rewrite::NEXT;
use crate::kernel::tables;

#[classifier]
fn tcx_pod_out(ctx: TcContext) -> i32 {
    if !is_unseen(&ctx) {
        return NEXT;
    }
    let Some(scratch) = tables::scratch(tables::LEAVING) else {
        return NEXT;
    };
    let found = look(&ctx, scratch);
    into_pod(&ctx, scratch, found)
}
