//! What arrives from outside: a packet to a VIP, or an answer from where a connection was led. Minimum kernel: 6.6 (TCX
//! links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::nat::{Way, handle, look};
use crate::kernel::rewrite::{NEXT, dropped};
use crate::kernel::tables;

#[classifier]
fn tcx_uplink_in(ctx: TcContext) -> i32 {
    let (Some(scratch), Some(config)) = (tables::scratch(tables::ARRIVING), tables::config())
    else {
        return NEXT;
    };
    let found = look(&ctx, scratch);
    if config.is_local(&scratch.packet.source) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    handle(&ctx, scratch, found, Way::Uplink)
}
