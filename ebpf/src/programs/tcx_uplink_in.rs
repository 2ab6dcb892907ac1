//! Ingress of the uplink: DNAT of packets to VIPs, reverse NAT of replies, and Neighbour Solicitations for pods. Minimum
//! kernel: 6.6 (TCX links).

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{ICMPV6, Packet, Read};
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::deny::is_denied;
use crate::kernel::env::Hook;
use crate::kernel::nat::{handle, parse};
use crate::kernel::skb::is_for_another_host;
use crate::kernel::transmit::{NEXT, dropped};
use crate::kernel::{ndp, tables};

#[classifier]
fn tcx_uplink_in(ctx: TcContext) -> i32 {
    if is_for_another_host(&ctx) {
        return NEXT;
    }
    let (Some(scratch), Some(config)) = (tables::scratch(tables::ARRIVING), tables::config())
    else {
        return NEXT;
    };
    let found = parse(&ctx, scratch);
    if is_denied(config, &scratch.packet.source) {
        return dropped(Verdict::DroppedDenied, NO_SLOT);
    }
    if matches!(found, Read::Other)
        && scratch.packet.protocol == ICMPV6
        && let Some(answered) = ndp::advertise_pod(&ctx, scratch, config)
    {
        return answered;
    }
    if is_spoofed(config, &scratch.packet) {
        return dropped(Verdict::DroppedSpoofed, NO_SLOT);
    }
    scratch.direct = 1;
    handle(&ctx, scratch, found, Hook::Uplink)
}

/// Whether the source address is a pod's of this node, so that the packet is spoofed. For IPv4 only known pods are checked,
/// because nodes have no known IPv4 prefix.
#[inline(always)]
fn is_spoofed(config: &Config, packet: &Packet) -> bool {
    config.is_local(&packet.source)
        || packet.v4 == 1 && tables::PODS.get_ptr(&packet.source).is_some()
}
