//! NDP proxy: answers Neighbour Solicitations for the node's pods on the uplink.
//!
//! At tcx and not in XDP: solicitations are rare, and an XDP program makes every other packet slower (a veth copies each
//! into a page and loses segmentation offload, drivers lose checksum offload).

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_skb_change_tail};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Neighbor, Solicitation, advertise, solicitation};
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::verdict::Verdict;

use super::skb::frame;
use super::tables;
use super::tables::Scratch;
use super::transmit::refused;

/// Turns a solicitation for a pod into its advertisement, in place, and sends that back. None for any other message.
#[inline(always)]
pub(crate) fn advertise_pod(
    ctx: &TcContext,
    scratch: &mut Scratch,
    config: &Config,
) -> Option<i32> {
    let Scratch {
        packet,
        solicited,
        advertised,
        ..
    } = scratch;
    if !parse_solicitation(ctx, packet, solicited) {
        return None;
    }
    if config.quiet == 1 || !config.is_local(&solicited.target) {
        return None;
    }
    if tables::PODS.get_ptr(&solicited.target).is_none() {
        tables::note(Verdict::Solicited);
        return None;
    }
    let node = Neighbor {
        mac: &config.uplink_mac,
        is_router: false,
    };
    if !write_advertisement(ctx, solicited, node, advertised) {
        return Some(refused());
    }
    tables::note(Verdict::Advertised);
    // SAFETY: the helper only sets the frame's destination.
    i32::try_from(unsafe { bpf_redirect(config.uplink, 0) }).ok()
}

// Not inlined: solicitation and advertisement together do not fit on a program's stack.

/// Parses a packet as a valid solicitation.
#[inline(never)]
pub(crate) fn parse_solicitation(
    ctx: &TcContext,
    packet: &Packet,
    solicited: &mut Solicitation,
) -> bool {
    solicitation(&frame(ctx), packet, solicited)
}

/// Turns a solicitation into the advertisement of the address's owner.
#[inline(never)]
pub(crate) fn write_advertisement(
    ctx: &TcContext,
    solicited: &Solicitation,
    owner: Neighbor<'_>,
    answer: &mut [u8; ADVERTISEMENT_LEN],
) -> bool {
    advertise(solicited, owner, answer);
    // SAFETY: the helper takes the hook's context.
    let sized =
        unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), ADVERTISEMENT_LEN as u32, 0) } == 0;
    sized && ctx.store(0, answer, 0).is_ok()
}
