//! What arrives from outside: a packet to a VIP, an answer from where a connection was led, or a question who has a pod's
//! address. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{ICMPV6, Read};
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::nat::{Way, handle, look};
use crate::kernel::rewrite::{NEXT, dropped};
use crate::kernel::{ndp, tables};

#[classifier]
fn tcx_uplink_in(ctx: TcContext) -> i32 {
    let (Some(scratch), Some(config)) = (tables::scratch(tables::ARRIVING), tables::config())
    else {
        return NEXT;
    };
    let found = look(&ctx, scratch);
    if matches!(found, Read::Other)
        && scratch.packet.protocol == ICMPV6
        && let Some(answered) = ndp::answer(&ctx, scratch, config)
    {
        return answered;
    }
    if config.is_local(&scratch.packet.source) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    handle(&ctx, scratch, found, Way::Uplink)
}
