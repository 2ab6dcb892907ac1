//! Direct forwarding of packets between the cluster's pods: from a pod's link to the uplink by a FIB lookup, or into a pod's
//! namespace by bpf_redirect_peer, without a second pass through the host's network stack.
//!
//! The host's routes decide about the uplink, the map `pod` about this node's pods. Every special case is left to the host:
//! packets without a route, too large for the link, with an expiring hop limit or with options, and the first packet to a
//! neighbour that the host does not know.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::BPF_FIB_LOOKUP_SKIP_NEIGH;
use aya_ebpf::bindings::bpf_check_mtu_flags::BPF_MTU_CHK_SEGS;
use aya_ebpf::helpers::generated::{
    bpf_check_mtu, bpf_fib_lookup, bpf_redirect_peer, bpf_skb_change_type,
};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::{Config, Forwarding};
use dormouse_ebpf::maps::Pod;
use dormouse_ebpf::next_hop::always_fits;
use dormouse_ebpf::packet::{Frame as _, L3, Packet, TCP};
use dormouse_ebpf::trace::Step;

use super::env::{Env, Hook};
use super::host_route::{self, Route};
use super::scratch::Scratch;
use super::skb::{TO_ANOTHER, TO_THIS_LINK, frame};
use super::transmit::{NEXT, NextHop, decrement_hop_limit, forward_to_neighbour, refused};
use super::{neighbors, tables, trace};

/// The FIB lookup found a route, and the neighbour, if it was looked up (`BPF_FIB_LKUP_RET_SUCCESS`).
const SEND_ON: i64 = 0;
/// The offset of a TCP header's length, which is the upper half of that byte, in words of four bytes.
const TCP_LENGTH: usize = 12;
const UDP_HEADER: u32 = 8;

/// Forwards a packet from one of the cluster's pods to another; leaves all others to the kernel. `of` has the pods' addresses:
/// it is the packet itself, or the one that an ICMP error quotes.
#[inline(never)]
pub(crate) fn fib_forward(ctx: &TcContext, scratch: &Scratch, of: &Packet, env: Env<'_>) -> i32 {
    let Env { config, hook } = env;
    let packet = &scratch.packet;
    let Forwarding::By(receiver) = config.forwarding.get() else {
        return NEXT;
    };
    if scratch.direct == 0 || !is_for_router(ctx, hook) {
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
    match hook {
        Hook::Pod => by_uplink(ctx, packet, receiver, config),
        _ => NEXT,
    }
}

/// Whether a frame is to be routed, not for another host or for all. A pod's only neighbour is its router, the bridge at the
/// host's end of its link. A VLAN tag, which can only be a priority here, would leave with the packet.
#[inline(always)]
fn is_for_router(ctx: &TcContext, hook: Hook) -> bool {
    // SAFETY: fields of the context.
    let (sent_to, tagged) = unsafe { ((*ctx.skb.skb).pkt_type, (*ctx.skb.skb).vlan_present) };
    match hook {
        Hook::Pod => sent_to == TO_ANOTHER && tagged == 0,
        Hook::Uplink => sent_to == TO_THIS_LINK,
        Hook::Egress => false,
    }
}

/// Redirects a packet into the namespace of a pod of this node, by the host's end of its link.
#[inline(always)]
fn into_pod(ctx: &TcContext, packet: &Packet, pod: &Pod) -> i32 {
    let (skb, link) = (ctx.skb.skb, pod.ifindex);
    if !fits(ctx, packet, link) {
        return NEXT;
    }
    // A pod that forwards packets itself, to a virtual machine for example, checks the hop limit again.
    if decrement_hop_limit(ctx, packet).is_none() || ctx.store(0, &pod.mac, 0).is_err() {
        return refused();
    }
    trace::step(Step::Direct, link.into(), 1);
    // SAFETY: the helpers only set the packet's type and destination; at the pod's end of the link the frame is for the pod.
    unsafe {
        bpf_skb_change_type(skb, TO_THIS_LINK);
        bpf_redirect_peer(link, 0) as i32
    }
}

/// Whether the packet, or each of its segments, fits the link's MTU.
#[inline(always)]
pub(super) fn fits(ctx: &TcContext, packet: &Packet, link: u32) -> bool {
    let skb = ctx.skb.skb;
    // An IPv4 address may be reused soon, so for IPv4 the lookup also shows that the link still exists.
    // SAFETY: a field of the context.
    if always_fits(packet) && unsafe { (*skb).gso_size } == 0 {
        return true;
    }
    let mut mtu = 0_u32;
    // SAFETY: the helper writes to `mtu`. It also fails if there is no such link any more.
    (unsafe { bpf_check_mtu(skb.cast(), link, &raw mut mtu, 0, BPF_MTU_CHK_SEGS.into()) }) == 0
}

/// Sends a packet out by the uplink, if the host's route to its target does.
#[inline(always)]
fn by_uplink(ctx: &TcContext, packet: &Packet, receiver: u32, config: &Config) -> i32 {
    let next = match next_hop(ctx, packet, receiver, config) {
        Ok(next) => next,
        Err(verdict) => return verdict,
    };
    if decrement_hop_limit(ctx, packet).is_none() {
        return refused();
    }
    trace::step(Step::Direct, config.uplink.into(), 0);
    // By the neighbour's entry instead of its link-layer address: the kernel probes entries that are in use.
    forward_to_neighbour(config.uplink, &next)
}

/// Looks up the host's route, with its MTU, as for a packet that this interface receives. The error is the packet's verdict.
#[inline(always)]
fn next_hop(
    ctx: &TcContext,
    packet: &Packet,
    receiver: u32,
    config: &Config,
) -> Result<NextHop, i32> {
    let mut room = MaybeUninit::uninit();
    let ends = (&packet.source, &packet.target);
    let route = host_route::lookup(&mut room, packet.v4 == 1, ends, receiver);
    route.l4_protocol = packet.protocol;
    route.sport = packet.source_port.to_be();
    route.dport = packet.target_port.to_be();
    route.__bindgen_anon_1.tot_len = length(ctx, packet).ok_or(NEXT)?;
    let begins = packet.begins();
    let known = neighbors::known_at(packet).ok_or(NEXT)?;
    let is_known = !begins && neighbors::is_known(known, packet);
    let flags = if is_known {
        BPF_FIB_LOOKUP_SKIP_NEIGH
    } else {
        0
    };
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(skb, &raw mut *route, size, flags) };
    if route.ifindex != config.uplink {
        return Err(NEXT);
    }
    match answer {
        SEND_ON if is_known => {}
        SEND_ON => neighbors::remember(known, packet),
        // The first packet to an unresolved neighbour is left to the host, which resolves it or reports the error. Later packets
        // are not: the host's conntrack would see a connection from the middle, and its rules may drop that as invalid.
        neighbors::NO_NEIGHBOR if !begins => {
            if !neighbors::may_look_for_one(ctx) {
                return Err(neighbors::refused());
            }
        }
        _ => return Err(NEXT),
    }
    Ok(NextHop::to(&host_route::hop(route)))
}

/// Bytes of the IP packet, or of each of its segments.
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
