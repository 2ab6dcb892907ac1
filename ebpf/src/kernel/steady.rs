//! Steady packets at the uplink's XDP program: see [`dormouse_ebpf::steady`]. Those of connections to other nodes, and from them, are translated by
//! their entries, and sent back by the link that they came by.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::xdp_action::XDP_TX;
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_node_address;
use dormouse_ebpf::flow::{FORWARDED, Flow, REPLY};
use dormouse_ebpf::next_hop::{
    MACS, MTU_MIN, NEXT_HOPS_MAX, NextHop, Remembered, Way, always_fits,
};
use dormouse_ebpf::packet::{Packet, TCP};
use dormouse_ebpf::steady::{
    TCP4, TCP6, UDP4, UDP6, is_masqueraded_request, is_steady, needs_other, translate,
};
use dormouse_ebpf::verdict::Verdict;

use super::established::{is_current, opposite};
use super::found;
use super::host_route::{self, Route};
use super::scratch::Scratch;
use super::tables::{self, Kernel};
use super::{clock, flows, verdicts};

/// Next hops that the uplink's XDP program has found in this tick.
#[map(name = "next_hop")]
static NEXT_HOPS: PerCpuArray<Remembered<NextHop>> =
    PerCpuArray::with_max_entries(NEXT_HOPS_MAX, 0);

/// The FIB lookup found a route and its neighbour, and the packet fits the link (`BPF_FIB_LKUP_RET_SUCCESS`).
const FOUND: i64 = 0;

/// Sends a packet of a known flow on, if it is steady and leaves by the uplink. None: nothing is changed, and the classifier handles it.
#[inline(never)]
pub(crate) fn forward(
    ctx: &XdpContext,
    scratch: &mut Scratch,
    config: &Config,
    flow: *mut Flow,
) -> Option<u32> {
    // A take-over is in progress: the other data path may know more of the flow.
    if !config.forwarding.get().is_alone() {
        return None;
    }
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    scratch.flow = unsafe { *flow };
    let now_ns = scratch.recent_ns();
    if !is_steady(&scratch.packet, &scratch.flow) || !is_kept(scratch, flow, now_ns) {
        return None;
    }
    if is_here(&scratch.packet, &scratch.flow.target, config) {
        return None;
    }
    let hop = next_hop(ctx, scratch, config, now_ns)?;
    send(ctx, scratch, &hop.macs)
}

/// Whether the flow's backend is still there, and the opposite entry where it is needed. Notes the time of the packet.
#[inline(always)]
fn is_kept(scratch: &mut Scratch, flow: *mut Flow, now_ns: u64) -> bool {
    let (kind, backend, generation) = (
        scratch.flow.kind,
        scratch.flow.backend,
        scratch.flow.generation,
    );
    if kind & REPLY == 0 && !is_current(backend, generation) {
        return false;
    }
    let is_due = flows::refresh(flow, now_ns);
    let needs_other =
        needs_other(&scratch.packet, &scratch.flow) && !found::recently(&scratch.flow);
    if kind & FORWARDED != 0 || !is_due && !needs_other {
        return true;
    }
    let Some(other) = opposite(scratch, flow) else {
        return false;
    };
    if is_masqueraded_request(&scratch.flow) {
        flows::refresh(other, now_ns);
    }
    found::note(&scratch.flow);
    true
}

/// Whether the other end is on this node, or is the node. IPv6 addresses of its pods are in the node prefix.
#[inline(always)]
fn is_here(packet: &Packet, target: &[u8; 16], config: &Config) -> bool {
    config.is_local(target)
        || packet.v4 == 1 && tables::PODS.get_ptr(target).is_some()
        || is_node_address(&Kernel, config, target)
}

/// The next hop to the other end, by the uplink, whose neighbour is known.
#[inline(always)]
fn next_hop(
    ctx: &XdpContext,
    scratch: &Scratch,
    config: &Config,
    now_ns: u64,
) -> Option<&'static NextHop> {
    let (packet, flow) = (&scratch.packet, &scratch.flow);
    let source = if flow.is(FORWARDED) {
        &packet.source
    } else {
        &flow.source
    };
    let target = config.via(&flow.target).unwrap_or(&flow.target);
    let (way, tick) = (Way::of(packet, source, target), clock::now_ticks());
    let memory = NEXT_HOPS.get_ptr_mut(way.place())?;
    // SAFETY: this CPU's own value, which only this program uses, once at a time.
    let memory = unsafe { &mut *memory };
    if memory.is_for(&way, tick) && packet.len <= memory.hop.len {
        return Some(&memory.hop);
    }
    if memory.hop.leaves_one(now_ns) {
        return None;
    }
    let mut room = MaybeUninit::uninit();
    let route = host_route::lookup(&mut room, packet.v4 == 1, (source, target), config.uplink);
    route.l4_protocol = packet.protocol;
    let fits = always_fits(packet);
    // With 0 the MTU is not looked up.
    route.__bindgen_anon_1.tot_len = if fits { 0 } else { packet.len };
    let size = size_of::<Route>() as i32;
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(ctx.ctx.cast(), &raw mut *route, size, 0) };
    if answer != FOUND || route.ifindex != config.uplink {
        return None;
    }
    (memory.way, memory.tick) = (way, tick);
    memory.hop.len = if fits { MTU_MIN } else { packet.len };
    memory.hop.macs[..6].copy_from_slice(&route.dmac);
    memory.hop.macs[6..].copy_from_slice(&route.smac);
    Some(&memory.hop)
}

/// Translates the packet in its frame, and sends it to the neighbour.
#[inline(always)]
fn send(ctx: &XdpContext, scratch: &Scratch, macs: &[u8; MACS]) -> Option<u32> {
    match (scratch.packet.v4, scratch.packet.protocol) {
        (1, TCP) => send_as::<TCP4>(ctx, scratch, macs),
        (1, _) => send_as::<UDP4>(ctx, scratch, macs),
        (_, TCP) => send_as::<TCP6>(ctx, scratch, macs),
        _ => send_as::<UDP6>(ctx, scratch, macs),
    }
}

/// None: the headers are not in the buffer's first piece.
#[inline(always)]
fn send_as<const N: usize>(ctx: &XdpContext, scratch: &Scratch, macs: &[u8; MACS]) -> Option<u32> {
    let head = ctx.data() as *mut [u8; N];
    if ctx.data() + N > ctx.data_end() {
        return None;
    }
    // SAFETY: inside the buffer, as checked, which no one else uses while the program runs.
    let head = unsafe { &mut *head };
    translate(head, &scratch.packet, &scratch.flow);
    // In words.
    head[..8].copy_from_slice(&macs[..8]);
    head[8..MACS].copy_from_slice(&macs[8..]);
    verdicts::note(Verdict::XdpForwarded);
    Some(XDP_TX)
}
