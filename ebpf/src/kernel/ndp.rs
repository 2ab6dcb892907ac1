//! Answers for the node's pods on the link: they are there without being there.
//!
//! At tcx and not in XDP: solicitations are rare, and an XDP program makes every other packet dearer (a veth copies each
//! into a page and loses segmentation offload, drivers lose checksums).

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_skb_change_tail};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::ndp::{ADVERTISEMENT_LEN, Solicitation, advertise, solicitation};
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::verdict::Verdict;

use super::send::refused;
use super::skb::frame;
use super::tables;
use super::tables::Scratch;

/// Turns a solicitation for a pod into its answer, in place, and sends it back. Nothing for any other message.
#[inline(always)]
pub(crate) fn answer(ctx: &TcContext, scratch: &mut Scratch, config: &Config) -> Option<i32> {
    let Scratch {
        packet,
        solicited: asked,
        advertised,
        ..
    } = scratch;
    if !question(ctx, packet, asked) {
        return None;
    }
    if config.quiet == 1 || !config.is_local(&asked.target) {
        return None;
    }
    if tables::PODS.get_ptr(&asked.target).is_none() {
        tables::note(Verdict::Solicited);
        return None;
    }
    if !write(ctx, asked, config, advertised) {
        return Some(refused());
    }
    tables::note(Verdict::Advertised);
    // SAFETY: the helper only notes where the frame goes.
    i32::try_from(unsafe { bpf_redirect(config.uplink, 0) }).ok()
}

// Functions of their own: question and answer at once are more than a program's stack holds.

#[inline(never)]
fn question(ctx: &TcContext, packet: &Packet, asked: &mut Solicitation) -> bool {
    match solicitation(&frame(ctx), packet) {
        Some(found) => {
            *asked = found;
            true
        }
        None => false,
    }
}

#[inline(never)]
fn write(
    ctx: &TcContext,
    asked: &Solicitation,
    config: &Config,
    answer: &mut [u8; ADVERTISEMENT_LEN],
) -> bool {
    advertise(asked, config.uplink_mac, answer);
    // SAFETY: the helper takes the hook's context.
    let sized =
        unsafe { bpf_skb_change_tail(ctx.as_ptr().cast(), ADVERTISEMENT_LEN as u32, 0) } == 0;
    sized && ctx.store(0, answer, 0).is_ok()
}
