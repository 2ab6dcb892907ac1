//! Translation of a packet by its flow: DNAT and SNAT for a client's packets, reverse NAT for replies.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_node_address;
use dormouse_ebpf::flow::{
    COUNTED, FORWARDED, Flow, LOADED, MASQUERADED, REPLY, SEEN_STEP_NS, Stage, TO_ACTIVATOR,
};
use dormouse_ebpf::packet::Packet;

use super::env::{Env, Hook};
use super::established::reply_flow;
use super::rewrite::{End, NewEnd, replace};
use super::tables::{Kernel, Scratch};
use super::transmit::{NEXT, PASS, forward, redirect_to_mac, refused};
use super::{count, tables};

/// Translates a packet by its flow, counts it, and sends it on.
#[inline(never)]
pub(crate) fn apply(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow, env: Env<'_>) -> i32 {
    refresh(flow);
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    scratch.flow = unsafe { *flow };
    if scratch.flow.is(REPLY) {
        replied(scratch, flow);
    } else {
        if scratch.flow.is(MASQUERADED)
            && let Some(reply) = reply_flow(scratch, flow)
        {
            advance_stage(reply, scratch);
        }
        counted(scratch, flow);
    }
    if scratch.flow.is(FORWARDED) {
        return forward(
            ctx,
            &scratch.packet,
            env.config.uplink,
            Some(&scratch.flow.target),
        );
    }
    let (packet, flow) = (&scratch.packet, &scratch.flow);
    let target = NewEnd {
        end: End::Target,
        address: &flow.target,
        port: flow.target_port,
    };
    let source = NewEnd {
        end: End::Source,
        address: &flow.source,
        port: flow.source_port,
    };
    if replace(ctx, packet, target).is_none() || replace(ctx, packet, source).is_none() {
        return refused();
    }
    if matches!(env.hook, Hook::Egress) && !flow.is(REPLY) {
        return redirect_to_target(ctx, packet, &flow.target, env.config);
    }
    deliver(ctx, packet, &flow.target, env)
}

/// Redirects a packet that is leaving already to the interface of its new target.
#[inline(always)]
fn redirect_to_target(ctx: &TcContext, packet: &Packet, target: &[u8; 16], config: &Config) -> i32 {
    // SAFETY: a field of the context.
    let interface = unsafe { (*ctx.skb.skb).ifindex };
    let Some(pod) = tables::PODS.get_ptr(target) else {
        if interface == config.uplink {
            return NEXT;
        }
        return forward(ctx, packet, config.uplink, None);
    };
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let (link, mac) = unsafe { ((*pod).ifindex, (*pod).mac) };
    if interface == link {
        return NEXT;
    }
    redirect_to_mac(ctx, link, &mac)
}

/// Leaves a translated packet to the kernel if its target is this node or one of its pods, else sends it out by the uplink.
#[inline(always)]
pub(crate) fn deliver(ctx: &TcContext, packet: &Packet, target: &[u8; 16], env: Env<'_>) -> i32 {
    let Env { config, hook } = env;
    if matches!(hook, Hook::Egress) {
        return NEXT;
    }
    let here = if packet.v4 == 1 {
        tables::PODS.get_ptr(target).is_some()
    } else {
        config.is_local(target)
    };
    if here || is_node_address(&Kernel, config, target) {
        return PASS;
    }
    forward(ctx, packet, config.uplink, config.via(target))
}

/// Counts a connection's begin and end as load of its backend, and, for an app's pod on this node, of the VIP.
#[inline(always)]
fn counted(scratch: &Scratch, flow: *mut Flow) {
    if !scratch.flow.loads() {
        return;
    }
    if scratch.packet.opens() {
        let app = if scratch.flow.kind == 0 { COUNTED } else { 0 };
        count::flow_opened(flow, LOADED | app);
    } else if scratch.packet.closes() {
        count::flow_closed(flow);
    }
}

/// Notes the end of a connection that the backend closes.
#[inline(always)]
fn replied(scratch: &mut Scratch, flow: *mut Flow) {
    if !scratch.packet.closes() {
        return;
    }
    // SAFETY: an aligned word of a map value.
    unsafe { (&raw mut (*flow).stage).write_volatile(Stage::Closed as u32) };
    scratch.back = scratch.key.reply(&scratch.flow);
    if !scratch.flow.is(TO_ACTIVATOR)
        && let Some(forward) = tables::flow(&scratch.back)
        && is_of(forward, &scratch.flow)
    {
        count::flow_closed(forward);
    }
}

/// Whether the forward flow's backend is the one that these replies come from.
#[inline(always)]
fn is_of(forward: *const Flow, reply: &Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (backend, generation) = unsafe { ((*forward).backend, (*forward).generation) };
    backend == reply.backend && generation == reply.generation
}

/// Advances the stage of the connection, which the reply flow holds, after a packet of the client.
#[inline(always)]
fn advance_stage(reply: *mut Flow, scratch: &Scratch) {
    refresh(reply);
    // SAFETY: an aligned word of a map value; the next packet repeats a lost update.
    unsafe {
        let stage = &raw mut (*reply).stage;
        stage.write_volatile(Stage::after(stage.read_volatile(), &scratch.packet));
    }
}

/// Keeps the flow from being removed as idle.
#[inline(always)]
fn refresh(flow: *mut Flow) {
    let now = tables::now_ns();
    // SAFETY: an aligned word of a map value; a lost update costs a step of freshness.
    unsafe {
        let seen = &raw mut (*flow).seen_ns;
        if now.wrapping_sub(seen.read_volatile()) > SEEN_STEP_NS {
            seen.write_volatile(now);
        }
    }
}
