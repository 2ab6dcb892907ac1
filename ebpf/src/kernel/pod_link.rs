//! What a pod sends to its own link: judged, and requests for the gateway answered in place.

use aya_ebpf::helpers::generated::bpf_redirect;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::maps::{NO_SLOT, Pod};
use dormouse_ebpf::ndp::Neighbor;
use dormouse_ebpf::packet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Frame as _, L3, Read};
use dormouse_ebpf::pod_link::{
    ARP_GATEWAY, ARP_REPLY, ARP_SENDER, ARP_TARGET, GATEWAY_MAC, Judgement, Owner,
    asks_for_gateway, judge,
};
use dormouse_ebpf::verdict::Verdict;

use super::ndp::{parse_solicitation, write_advertisement};
use super::scratch::Scratch;
use super::skb::frame;
use super::transmit::{NEXT, dropped, refused};
use super::{tables, verdicts};

/// The gateway, as its neighbours see it.
const GATEWAY: Neighbor<'_> = Neighbor {
    mac: &GATEWAY_MAC,
    is_router: true,
};

/// The pod behind a link.
struct Behind<'a> {
    /// The link's index.
    link: u32,
    config: &'a Config,
}

impl Behind<'_> {
    /// The pod from which a packet comes.
    #[inline(always)]
    fn link(ctx: &TcContext) -> Option<Self> {
        Some(Self {
            link: link_of(ctx),
            config: tables::config()?,
        })
    }
}

impl Owner for Behind<'_> {
    #[inline(always)]
    fn owns(&self, address: &[u8; 16]) -> bool {
        pod_at(self.link, address).is_some()
    }

    #[inline(always)]
    fn node_prefix(&self) -> &[u8; 16] {
        &self.config.node_prefix
    }
}

/// The pod behind a link, if the address is one of its own.
#[inline(always)]
pub(crate) fn pod_at(link: u32, address: &[u8; 16]) -> Option<&'static Pod> {
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let pod = unsafe { &*tables::PODS.get_ptr(address)? };
    (pod.ifindex == link).then_some(pod)
}

/// The interface by which a packet comes in.
#[inline(always)]
pub(crate) fn link_of(ctx: &TcContext) -> u32 {
    // SAFETY: a field of the context.
    unsafe { (*ctx.skb.skb).ifindex }
}

/// A solicitation is to be answered; no verdict of programs.
const ANSWER: i32 = 1;

/// Handles a frame whose source is none of the pod's addresses, or that is a message to the link.
// In parts that are not inlined: together they do not fit on a program's stack.
#[inline(never)]
pub(crate) fn handle_on_link(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    match frame(ctx).ethertype() {
        Some(ETHERTYPE_IPV6) => {
            let is_valid = parse_solicitation(&frame(ctx), &scratch.packet, &mut scratch.solicited);
            match judge_packet(ctx, scratch, found, is_valid) {
                ANSWER => advertise_gateway(ctx, scratch),
                verdict => verdict,
            }
        }
        Some(ETHERTYPE_IPV4) => dropped(Verdict::DroppedSpoofed, NO_SLOT),
        Some(ETHERTYPE_ARP) => answer_arp(ctx),
        _ => dropped(Verdict::DroppedLink, NO_SLOT),
    }
}

#[inline(never)]
fn judge_packet(ctx: &TcContext, scratch: &Scratch, found: Read, is_valid: bool) -> i32 {
    let Some(pod) = Behind::link(ctx) else {
        return NEXT;
    };
    let solicited = is_valid.then_some(&scratch.solicited);
    match judge(&frame(ctx), (found, &scratch.packet), &pod, solicited) {
        Judgement::Pass => NEXT,
        Judgement::Answer => ANSWER,
        Judgement::Drop(verdict) => dropped(verdict, NO_SLOT),
    }
}

#[inline(always)]
fn advertise_gateway(ctx: &TcContext, scratch: &mut Scratch) -> i32 {
    if !write_advertisement(ctx, &scratch.solicited, GATEWAY, &mut scratch.advertised) {
        return refused();
    }
    send_back(ctx)
}

#[inline(never)]
fn answer_arp(ctx: &TcContext) -> i32 {
    let Some(pod) = Behind::link(ctx) else {
        return NEXT;
    };
    if !asks_for_gateway(&frame(ctx), &pod) {
        return dropped(Verdict::DroppedNeighbor, NO_SLOT);
    }
    if write_arp_reply(ctx).is_none() {
        return refused();
    }
    send_back(ctx)
}

/// Turns the request into the gateway's reply.
#[inline(always)]
fn write_arp_reply(ctx: &TcContext) -> Option<()> {
    let asker = frame(ctx).load::<10>(L3 + ARP_SENDER)?;
    ctx.store(L3, &ARP_REPLY, 0).ok()?;
    ctx.store(L3 + ARP_SENDER, &ARP_GATEWAY, 0).ok()?;
    ctx.store(L3 + ARP_TARGET, &asker.0, 0).ok()?;
    let mac = frame(ctx).load::<6>(L3 + ARP_TARGET)?;
    ctx.store(0, &mac.0, 0).ok()?;
    ctx.store(6, &GATEWAY_MAC, 0).ok()
}

/// Sends a frame back to the pod that asked.
#[inline(always)]
fn send_back(ctx: &TcContext) -> i32 {
    verdicts::note(Verdict::GatewayAnswered);
    // SAFETY: the helper only sets the frame's destination.
    (unsafe { bpf_redirect(link_of(ctx), 0) }) as i32
}
