//! The way of a translated packet to a backend on another node: by the host's route, which need not be one by the uplink. An overlay
//! network (VXLAN, IPIP) carries what is for the pods of another CNI plugin.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::BPF_FIB_LOOKUP_SKIP_NEIGH;
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::packet::Packet;

use super::host_route::{self, Route};
use super::transmit::{forward, forward_on};

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
    let mut room = MaybeUninit::uninit();
    let route = host_route::lookup(&mut room, packet.v4 == 1, (source, target), uplink);
    route.l4_protocol = packet.protocol;
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(skb, &raw mut *route, size, BPF_FIB_LOOKUP_SKIP_NEIGH) };
    if !matches!(answer, FOUND | TOO_LARGE) || route.ifindex == uplink {
        return forward(ctx, packet, uplink, None);
    }
    let next = host_route::next_hop(route);
    forward_on(ctx, packet, route.ifindex, Some(&next))
}
