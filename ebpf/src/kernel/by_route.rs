//! The way of a translated packet to a backend on another node: by the host's route, which need not be one by the uplink. An overlay
//! network (VXLAN, IPIP) carries what is for the pods of another CNI plugin.

use core::mem::MaybeUninit;
use core::ops::RangeInclusive;

use aya_ebpf::bindings::BPF_FIB_LOOKUP_SKIP_NEIGH;
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::Flow;
use dormouse_ebpf::next_hop::{NEXT_HOPS_MAX, Remembered, RouteHop, Way};
use dormouse_ebpf::packet::Packet;

use super::clock;
use super::host_route::{self, Route};
use super::transmit::{NextHop, PASS, forward, forward_on};

/// Routes of translated packets to other nodes that the classifiers have found in this tick.
#[map(name = "route")]
static ROUTES: PerCpuArray<Remembered<RouteHop>> = PerCpuArray::with_max_entries(NEXT_HOPS_MAX, 0);

/// The FIB lookup found a route (`BPF_FIB_LKUP_RET_SUCCESS`); the packet is larger than its link takes (`_FRAG_NEEDED`): a tunnel
/// fragments what it makes of it.
const FOUND: i64 = 0;
const TOO_LARGE: i64 = 8;
/// The route discards packets (`_BLACKHOLE` to `_PROHIBIT`).
const DISCARDS: RangeInclusive<i64> = 1..=3;

/// Sends a packet with the ends of its flow out by the interface of the host's route; by the uplink where there is none, as on a host that
/// forwards nothing itself.
#[inline(never)]
pub(crate) fn forward_by_route(ctx: &TcContext, packet: &Packet, flow: &Flow, uplink: u32) -> i32 {
    let way = Way::of(packet, &flow.source, &flow.target);
    let tick = clock::now_ticks();
    let Some(route) = ROUTES.get_ptr_mut(way.place()) else {
        return forward(ctx, packet, uplink, None);
    };
    // SAFETY: this CPU's own value. The programs that use it run in soft interrupts or without them, so once at a time.
    let route = unsafe { &mut *route };
    if !route.is_for(&way, tick) {
        let hop = match look_up(ctx, packet, flow, uplink) {
            Ok(hop) => hop,
            // The host discards it.
            Err(answer) if DISCARDS.contains(&answer) => return PASS,
            Err(_) => return forward(ctx, packet, uplink, None),
        };
        *route = Remembered { way, tick, hop };
    }
    forward_on(
        ctx,
        packet,
        route.hop.interface,
        Some(&NextHop::to(&route.hop)),
    )
}

/// The next hop by the host's routes. The error is the helper's answer.
#[inline(always)]
fn look_up(ctx: &TcContext, packet: &Packet, flow: &Flow, uplink: u32) -> Result<RouteHop, i64> {
    let mut room = MaybeUninit::uninit();
    let ends = (&flow.source, &flow.target);
    let route = host_route::lookup(&mut room, packet.v4 == 1, ends, uplink);
    route.l4_protocol = packet.protocol;
    let (skb, size) = (ctx.skb.skb.cast(), size_of::<Route>() as i32);
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(skb, &raw mut *route, size, BPF_FIB_LOOKUP_SKIP_NEIGH) };
    if matches!(answer, FOUND | TOO_LARGE) {
        Ok(host_route::hop(route))
    } else {
        Err(answer)
    }
}
