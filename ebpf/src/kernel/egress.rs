//! Packets that leave by the uplink or enter a pod: reverse NAT of replies that no other hook sees.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{is_external_ip, is_node_address};
use dormouse_ebpf::flow::{Flow, FlowKey, OPENING, SERVICE, TO_ACTIVATOR};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, FIRST, Frame as _, L3, Read, mapped};
use dormouse_ebpf::verdict::Verdict;

use super::apply_flow::apply;
use super::env::{Env, Hook};
use super::established::is_reply;
use super::scratch::Scratch;
use super::skb::frame;
use super::tables::{self, Kernel};
use super::transmit::{NEXT, dropped};
use super::{flows, fragments, icmp_errors, opening};

/// Handles a packet that leaves by the uplink: replies are translated back, packets to unallocated service addresses are
/// dropped.
#[inline(always)]
pub(crate) fn out(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    let Some(config) = tables::config() else {
        return NEXT;
    };
    let verdict = reverse_nat(ctx, scratch, found, config);
    if verdict != NEXT {
        return verdict;
    }
    if config.is_service_address(&scratch.packet.target) {
        return dropped(Verdict::DroppedUnallocated, NO_SLOT);
    }
    // Connections that bypassed the socket hooks are translated when the router has sent them back.
    if let Some(slot) = config.vip(&scratch.packet.target)
        && matches!(found, Read::Other | Read::Error)
    {
        return dropped(Verdict::DroppedProtocol, slot);
    }
    NEXT
}

/// Whether a packet that leaves by the uplink came in by it, to an external address of a Service: no port of a Service took it,
/// and the router, which has sent it to this node, would send it back until its hop limit is used up. Packets of pods and of the
/// node leave: the address may be another host's, too.
#[inline(always)]
pub(crate) fn returns_to_router(ctx: &TcContext) -> bool {
    let Some(config) = tables::config() else {
        return false;
    };
    // SAFETY: a field of the context.
    let came_in = unsafe { (*ctx.skb.skb).ingress_ifindex };
    came_in == config.uplink && target(ctx).is_some_and(|target| is_external_ip(&Kernel, &target))
}

/// Handles a packet that enters a pod: only the node's own replies can need reverse NAT here.
#[inline(always)]
pub(crate) fn into_pod(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    match tables::config() {
        Some(config) => reverse_nat(ctx, scratch, found, config),
        None => NEXT,
    }
}

/// Whether a packet may need reverse NAT: the node sent it, or a pod whose own link no program sees. Checked first, since
/// most packets are neither.
#[inline(always)]
pub(crate) fn may_need_reverse_nat(ctx: &TcContext) -> bool {
    let Some(config) = tables::config() else {
        return false;
    };
    let Some(source) = source(ctx) else {
        return false;
    };
    // SAFETY: a field of the context; 0 for packets that the node itself sends.
    let came_in = unsafe { (*ctx.skb.skb).ingress_ifindex } != 0;
    // A pod's packet was seen at its link; one that the host has masqueraded since was not.
    if came_in && config.unseen_pods == 0 {
        return is_node_address(&Kernel, config, &source);
    }
    if let Some(pod) = tables::PODS.get_ptr(&source) {
        // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
        return unsafe { (*pod).seen } == 0;
    }
    // From another link: a pod's of another CNI plugin.
    came_in || is_node_address(&Kernel, config, &source)
}

/// The source address of an IP packet.
#[inline(always)]
fn source(ctx: &TcContext) -> Option<[u8; 16]> {
    let frame = frame(ctx);
    match frame.ethertype()? {
        ETHERTYPE_IPV4 => frame.load(L3 + 12).map(|bytes| mapped(bytes.0)),
        ETHERTYPE_IPV6 => frame.load(L3 + 8).map(|bytes| bytes.0),
        _ => None,
    }
}

/// The destination address of an IP packet.
#[inline(always)]
fn target(ctx: &TcContext) -> Option<[u8; 16]> {
    let frame = frame(ctx);
    match frame.ethertype()? {
        ETHERTYPE_IPV4 => frame.load(L3 + 16).map(|bytes| mapped(bytes.0)),
        ETHERTYPE_IPV6 => frame.load(L3 + 24).map(|bytes| bytes.0),
        _ => None,
    }
}

/// Applies a reply's flow, or the flow that redirects a connected socket whose backend is gone.
#[inline(always)]
fn reverse_nat(ctx: &TcContext, scratch: &mut Scratch, found: Read, config: &Config) -> i32 {
    let env = Env {
        config,
        hook: Hook::Egress,
    };
    match found {
        Read::Transport => {}
        Read::Fragment if fragments::load_ports(&mut scratch.packet) => {}
        Read::Error => return icmp_errors::translate(ctx, scratch, env),
        _ => return NEXT,
    }
    if scratch.packet.fragment == FIRST {
        fragments::store_ports(&scratch.packet);
    }
    scratch.key = FlowKey::of(&scratch.packet);
    match flows::find(&scratch.key) {
        Some(flow) if is_reply(flow) || is_redirected(flow) => {
            let flow = opening::advance(ctx, scratch, flow);
            apply(ctx, scratch, flow, env)
        }
        _ => NEXT,
    }
}

/// Whether the flow redirects a socket of the node, see [`super::stale_backend`]: no other flow of
/// this direction is created at egress.
#[inline(always)]
fn is_redirected(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).kind & !(SERVICE | TO_ACTIVATOR | OPENING) == 0 }
}
