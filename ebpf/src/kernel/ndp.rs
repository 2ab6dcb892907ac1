//! NDP proxy: answers Neighbour Solicitations for the node's pods on the uplink.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_skb_change_tail};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Neighbor, Solicitation, advertise, solicitation};
use dormouse_ebpf::packet::{Frame, ICMPV6, Packet};
use dormouse_ebpf::verdict::Verdict;

use super::scratch::Scratch;
use super::transmit::refused;
use super::{tables, verdicts};

/// Whether a frame solicits a pod of this node, which the node answers for.
#[inline(always)]
pub(crate) fn is_for_pod<F: Frame>(frame: &F, scratch: &mut Scratch, config: &Config) -> bool {
    let Scratch {
        packet, solicited, ..
    } = scratch;
    if packet.protocol != ICMPV6 || !parse_solicitation(frame, packet, solicited) {
        return false;
    }
    if config.quiet == 1 || !config.is_local(&solicited.target) {
        return false;
    }
    let is_pod = tables::PODS.get_ptr(&solicited.target).is_some();
    if !is_pod {
        verdicts::note(Verdict::Solicited);
    }
    is_pod
}

/// Turns a solicitation for a pod into its advertisement, in place, and sends that back.
#[inline(always)]
pub(crate) fn advertise_pod(ctx: &TcContext, scratch: &mut Scratch, config: &Config) -> i32 {
    write_for_pod(scratch, config);
    if !replace(ctx, &scratch.advertised) {
        return refused();
    }
    verdicts::note(Verdict::Advertised);
    // SAFETY: the helper only sets the frame's destination.
    (unsafe { bpf_redirect(config.uplink, 0) }) as i32
}

// Not inlined: solicitation and advertisement together do not fit on a program's stack.

/// Parses a packet as a valid solicitation.
#[inline(never)]
pub(crate) fn parse_solicitation<F: Frame>(
    frame: &F,
    packet: &Packet,
    solicited: &mut Solicitation,
) -> bool {
    solicitation(frame, packet, solicited)
}

/// Writes the advertisement of a pod into the scratch memory.
#[inline(never)]
pub(crate) fn write_for_pod(scratch: &mut Scratch, config: &Config) {
    let node = Neighbor {
        mac: &config.uplink_mac,
        is_router: false,
    };
    advertise(&scratch.solicited, node, &mut scratch.advertised);
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
    replace(ctx, answer)
}

/// Replaces a frame by an advertisement.
#[inline(always)]
fn replace(ctx: &TcContext, answer: &[u8; ADVERTISEMENT_LEN]) -> bool {
    // SAFETY: the helper takes the hook's context.
    let sized =
        unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), ADVERTISEMENT_LEN as u32, 0) } == 0;
    sized && ctx.store(0, answer, 0).is_ok()
}
