//! What arrives from outside: a packet to a VIP, an answer from where a connection was led, or a question who has a pod's
//! address. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{ICMPV6, Packet, Read};
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::nat::{Way, handle, look};
use crate::kernel::send::{NEXT, dropped};
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
    if is_here(config, &scratch.packet) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    scratch.direct = 1;
    handle(&ctx, scratch, found, Way::Uplink)
}

/// The packet says that it comes from a pod of this node. IPv4 ranges of nodes are not known here, addresses are.
#[inline(always)]
fn is_here(config: &Config, packet: &Packet) -> bool {
    config.is_local(&packet.source)
        || packet.v4 == 1 && tables::PODS.get_ptr(&packet.source).is_some()
}
