//! The way of a translated packet to a backend on another node: by the host's route, which need not be one by the uplink. An overlay
//! network (VXLAN, IPIP) carries what is for the pods of another CNI plugin.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{BPF_FIB_LOOKUP_SKIP_NEIGH, bpf_fib_lookup as Route};
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::{Packet, v4_of};

use super::rewrite::{single, words};
use super::transmit::{AF_INET, AF_INET6, NextHop, forward, forward_on};
use super::words::zero;

/// The FIB lookup found a route (`BPF_FIB_LKUP_RET_SUCCESS`); the packet is larger than its link takes (`_FRAG_NEEDED`): a tunnel
/// fragments what it makes of it.
const FOUND: i64 = 0;
const TOO_LARGE: i64 = 8;

/// Sends a packet with these ends out by the interface of the host's route; by the uplink where there is none, as on a host that
/// forwards nothing itself.
#[inline(never)]
pub(crate) fn forward_by_route(
    ctx: &TcContext,
    packet: &Packet,
    source: &[u8; 16],
    target: &[u8; 16],
    uplink: u32,
) -> i32 {
    // SAFETY: all zero is a valid value of this plain struct.
    let mut route = MaybeUninit::uninit();
    let route: &mut Route = unsafe { zero(&mut route) };
    route.l4_protocol = packet.protocol;
    route.ifindex = uplink;
    if packet.v4 == 1 {
        route.family = AF_INET as u8;
        route.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(v4_of(source));
        route.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(v4_of(target));
    } else {
        route.family = AF_INET6 as u8;
        route.__bindgen_anon_3.ipv6_src = words(source);
        route.__bindgen_anon_4.ipv6_dst = words(target);
    }
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(skb, &raw mut *route, size, BPF_FIB_LOOKUP_SKIP_NEIGH) };
    if !matches!(answer, FOUND | TOO_LARGE) || route.ifindex == uplink {
        return forward(ctx, packet, uplink, None);
    }
    // SAFETY: the helper wrote a next hop of the family that it returned.
    let next = unsafe {
        if u32::from(route.family) == AF_INET {
            NextHop::v4(route.__bindgen_anon_4.ipv4_dst)
        } else {
            NextHop::v6(route.__bindgen_anon_4.ipv6_dst.map(single))
        }
    };
    forward_on(ctx, packet, route.ifindex, Some(&next))
}
