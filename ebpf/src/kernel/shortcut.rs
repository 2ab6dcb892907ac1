//! Leads packets between the cluster's pods past the host's own forwarding: from a pod's link to the uplink, or into a pod,
//! without a second walk through the network stack.
//!
//! By the uplink the host's routes decide all the same; who is here, the table of pods says. Whatever is not plainly to be
//! forwarded is left to the host: what it has no route for, what is too large, whose hops run out, what has options to be read
//! on the way, and the first of a conversation with a neighbour that it does not know.

use aya_ebpf::bindings::bpf_check_mtu_flags::BPF_MTU_CHK_SEGS;
use aya_ebpf::bindings::{
    BPF_FIB_LOOKUP_SKIP_NEIGH, bpf_fib_lookup as Route, bpf_redir_neigh as NextHop,
};
use aya_ebpf::helpers::generated::{
    bpf_check_mtu, bpf_fib_lookup, bpf_redirect_peer, bpf_skb_change_type,
};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::maps::Pod;
use dormouse_ebpf::packet::{Frame as _, L3, Packet, TCP, v4_of};
use dormouse_ebpf::trace::Step;

use super::nat::Way;
use super::rewrite::words;
use super::send::{AF_INET, AF_INET6, NEXT, hop, refused, send_by};
use super::skb::frame;
use super::tables::Scratch;
use super::{tables, trace};

/// To this link's own link-layer address (`PACKET_HOST` of if_packet.h).
const TO_THIS_LINK: u32 = 0;
/// To another one's (`PACKET_OTHERHOST`).
const TO_ANOTHER: u32 = 3;
/// The routes' answer that a packet is to be sent on, and its neighbour, if that was asked, is known
/// (`BPF_FIB_LKUP_RET_SUCCESS`).
const SEND_ON: i64 = 0;
/// What every link of a pod takes, for it takes IPv6 (RFC 8200 5).
const MTU_MIN: u16 = 1_280;
/// Where a TCP header says how long it is, in the upper half of the byte, and in which unit.
const TCP_LENGTH: usize = 12;
const UDP_HEADER: u32 = 8;

/// Sends on what goes from one of the cluster's pods to another; the kernel sends on the rest. Whose the packet is, `of` says: itself,
/// or what an error quotes.
#[inline(never)]
pub(crate) fn shorten(
    ctx: &TcContext,
    scratch: &Scratch,
    of: &Packet,
    config: &Config,
    way: Way,
) -> i32 {
    let packet = &scratch.packet;
    if !config.forwards() || scratch.direct == 0 || !is_for_router(ctx, way) {
        return NEXT;
    }
    if !packet.is_plain() || packet.hop_limit <= 1 {
        return NEXT;
    }
    if !config.is_pod(&of.target) || !config.is_pod(&of.source) {
        return NEXT;
    }
    if (packet.v4 == 1 || config.is_local(&packet.target))
        && let Some(pod) = tables::PODS.get_ptr(&packet.target)
    {
        // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
        let pod = unsafe { &*pod };
        return if pod.direct == 1 {
            into_pod(ctx, packet, pod)
        } else {
            NEXT
        };
    }
    match way {
        Way::Pod => by_uplink(ctx, packet, config),
        _ => NEXT,
    }
}

/// Frames for other hosts, or for all, are not to be routed. A pod has no other neighbour than its router, the bridge behind its
/// link. A tag, which can only be a priority here, would leave with the packet.
#[inline(always)]
fn is_for_router(ctx: &TcContext, way: Way) -> bool {
    // SAFETY: fields of the context.
    let (sent_to, tagged) = unsafe { ((*ctx.skb.skb).pkt_type, (*ctx.skb.skb).vlan_present) };
    match way {
        Way::Pod => sent_to == TO_ANOTHER && tagged == 0,
        Way::Uplink => sent_to == TO_THIS_LINK,
        Way::Out => false,
    }
}

/// Into the namespace of a pod of this node, by the host's end of its link.
#[inline(always)]
fn into_pod(ctx: &TcContext, packet: &Packet, pod: &Pod) -> i32 {
    let (skb, link) = (ctx.skb.skb, pod.ifindex);
    if !fits(ctx, packet, link) {
        return NEXT;
    }
    // What a pod passes on, to a virtual machine for one, is looked at once more.
    if hop(ctx, packet).is_none() || ctx.store(0, &pod.mac, 0).is_err() {
        return refused();
    }
    trace::step(Step::Direct, link.into(), 1);
    // SAFETY: a frame that has come to the pod's own end is for it; the helpers only note this, and where it goes.
    unsafe {
        bpf_skb_change_type(skb, TO_THIS_LINK);
        bpf_redirect_peer(link, 0) as i32
    }
}

/// The packet, or each that it will be cut into, is not larger than the link takes.
#[inline(always)]
fn fits(ctx: &TcContext, packet: &Packet, link: u32) -> bool {
    let skb = ctx.skb.skb;
    // An IPv4 address may soon be another pod's, so there it is asked whether the link is there at all.
    // SAFETY: a field of the context.
    if packet.v4 == 0 && packet.len <= MTU_MIN && unsafe { (*skb).gso_size } == 0 {
        return true;
    }
    let mut mtu = 0_u32;
    // SAFETY: the helper writes to `mtu`. It also fails if there is no such link any more.
    (unsafe { bpf_check_mtu(skb.cast(), link, &raw mut mtu, 0, BPF_MTU_CHK_SEGS.into()) }) == 0
}

/// Out by the uplink, if that is where the host's routes lead.
#[inline(always)]
fn by_uplink(ctx: &TcContext, packet: &Packet, config: &Config) -> i32 {
    let Some(next) = next_hop(ctx, packet, config) else {
        return NEXT;
    };
    if hop(ctx, packet).is_none() {
        return refused();
    }
    trace::step(Step::Direct, config.uplink.into(), 0);
    // By its entry as a neighbour rather than to its link-layer address: the kernel asks after neighbours that are used.
    send_by(config.uplink, &next)
}

/// Asks the host's routes, with their MTU.
#[inline(always)]
fn next_hop(ctx: &TcContext, packet: &Packet, config: &Config) -> Option<NextHop> {
    // SAFETY: all zero is a valid value of these plain structs.
    let (mut route, mut next): (Route, NextHop) = unsafe { core::mem::zeroed() };
    route.l4_protocol = packet.protocol;
    route.sport = packet.source_port.to_be();
    route.dport = packet.target_port.to_be();
    route.__bindgen_anon_1.tot_len = length(ctx, packet)?;
    route.ifindex = config.forwarder;
    if packet.v4 == 1 {
        route.family = AF_INET as u8;
        route.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(v4_of(&packet.source));
        route.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(v4_of(&packet.target));
    } else {
        route.family = AF_INET6 as u8;
        route.__bindgen_anon_3.ipv6_src = words(&packet.source);
        route.__bindgen_anon_4.ipv6_dst = words(&packet.target);
    }
    // Who begins a conversation with a neighbour that is not there shall hear of it from the host. Of others, it would see
    // an answer without the question, which its rules may take for invalid.
    let flags = if packet.begins() {
        0
    } else {
        BPF_FIB_LOOKUP_SKIP_NEIGH
    };
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // SAFETY: the helper reads and writes `route`, whose size it is told.
    let answer = unsafe { bpf_fib_lookup(skb, &raw mut route, size, flags) };
    if answer != SEND_ON || route.ifindex != config.uplink {
        return None;
    }
    next.nh_family = route.family.into();
    // SAFETY: the helper wrote a next hop of the family that it told.
    unsafe {
        if next.nh_family == AF_INET {
            next.__bindgen_anon_1.ipv4_nh = route.__bindgen_anon_4.ipv4_dst;
        } else {
            next.__bindgen_anon_1.ipv6_nh = route.__bindgen_anon_4.ipv6_dst;
        }
    }
    Some(next)
}

/// Bytes of the IP packet; of one that will be cut, of each piece.
#[inline(always)]
fn length(ctx: &TcContext, packet: &Packet) -> Option<u16> {
    // SAFETY: a field of the context.
    let piece = unsafe { (*ctx.skb.skb).gso_size };
    if piece == 0 {
        return Some(packet.len);
    }
    let header = if packet.protocol == TCP {
        let [words] = frame(ctx).load::<1>(packet.l4 as usize + TCP_LENGTH)?.0;
        u32::from(words >> 4) * 4
    } else {
        UDP_HEADER
    };
    u16::try_from(u32::from(packet.l4) - L3 as u32 + header + piece).ok()
}
