//! Steady packets at the uplink's XDP program: see [`dormouse_ebpf::steady`]. Those of connections to other nodes, and from them, are translated by
//! their entries, and sent back by the link that they came by.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::xdp_action::XDP_TX;
use aya_ebpf::helpers::generated::bpf_fib_lookup;
use aya_ebpf::programs::XdpContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_node_address;
use dormouse_ebpf::flow::{FORWARDED, Flow, REPLY};
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::steady::{
    TCP4, TCP6, UDP4, UDP6, is_masqueraded_request, is_steady, keeps_reply, needs_other, translate,
};
use dormouse_ebpf::verdict::Verdict;

use super::established::{is_current, reply_flow};
use super::host_route::{self, Route};
use super::tables::{self, Kernel, Scratch};

/// The FIB lookup found a route and its neighbour, and the packet fits the link (`BPF_FIB_LKUP_RET_SUCCESS`).
const FOUND: i64 = 0;
/// Offset of the EtherType, behind both link-layer addresses.
const ETHERTYPE: usize = 12;

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
    let now_ns = tables::now_ns();
    if !is_steady(&scratch.packet, &scratch.flow, now_ns) || !is_kept(scratch, flow, now_ns) {
        return None;
    }
    if is_here(&scratch.flow, config) {
        return None;
    }
    let mut room = MaybeUninit::uninit();
    let route = route(&mut room, ctx, scratch, config)?;
    send(ctx, scratch, route)
}

/// Whether the flow's backend is still there, and the opposite entry where it is needed.
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
    if !needs_other(&scratch.packet, &scratch.flow) {
        return true;
    }
    if !is_masqueraded_request(&scratch.flow) {
        scratch.back = scratch.key.reply(&scratch.flow);
        return tables::flow(&scratch.back).is_some();
    }
    let Some(reply) = reply_flow(scratch, flow) else {
        return false;
    };
    // SAFETY: as in `forward`.
    keeps_reply(&scratch.packet, unsafe { &*reply }, now_ns)
}

/// Whether the other end is on this node, or is the node.
#[inline(always)]
fn is_here(flow: &Flow, config: &Config) -> bool {
    config.is_local(&flow.target)
        || tables::PODS.get_ptr(&flow.target).is_some()
        || is_node_address(&Kernel, config, &flow.target)
}

/// The host's route to the other end, by the uplink to a neighbour that is known.
#[inline(always)]
fn route<'a>(
    room: &'a mut MaybeUninit<super::words::Words<Route>>,
    ctx: &XdpContext,
    scratch: &Scratch,
    config: &Config,
) -> Option<&'a Route> {
    let (packet, flow) = (&scratch.packet, &scratch.flow);
    let source = if flow.is(FORWARDED) {
        &packet.source
    } else {
        &flow.source
    };
    let target = config.via(&flow.target).unwrap_or(&flow.target);
    let route = host_route::lookup(room, packet.v4 == 1, (source, target), config.uplink);
    route.l4_protocol = packet.protocol;
    route.__bindgen_anon_1.tot_len = packet.len;
    let size = size_of::<Route>() as i32;
    // SAFETY: the helper reads and writes `route`, whose size is passed.
    let answer = unsafe { bpf_fib_lookup(ctx.ctx.cast(), &raw mut *route, size, 0) };
    (answer == FOUND && route.ifindex == config.uplink).then_some(route)
}

/// Translates the packet in its frame, and sends it to the neighbour.
#[inline(always)]
fn send(ctx: &XdpContext, scratch: &Scratch, route: &Route) -> Option<u32> {
    match (scratch.packet.v4, scratch.packet.protocol) {
        (1, TCP) => send_as::<TCP4>(ctx, scratch, route),
        (1, _) => send_as::<UDP4>(ctx, scratch, route),
        (_, TCP) => send_as::<TCP6>(ctx, scratch, route),
        _ => send_as::<UDP6>(ctx, scratch, route),
    }
}

/// None: the headers are not in the buffer's first piece.
#[inline(always)]
fn send_as<const N: usize>(ctx: &XdpContext, scratch: &Scratch, route: &Route) -> Option<u32> {
    let head = ctx.data() as *mut [u8; N];
    if ctx.data() + N > ctx.data_end() {
        return None;
    }
    // SAFETY: inside the buffer, as checked, which no one else uses while the program runs.
    let head = unsafe { &mut *head };
    translate(head, &scratch.packet, &scratch.flow);
    head[..ETHERTYPE / 2].copy_from_slice(&route.dmac);
    head[ETHERTYPE / 2..ETHERTYPE].copy_from_slice(&route.smac);
    tables::note(Verdict::XdpForwarded);
    Some(XDP_TX)
}
