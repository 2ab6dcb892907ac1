//! Does with a packet what its flow says.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_local;
use dormouse_ebpf::flow::{
    ACTIVATED, COUNTED, Flow, HIDDEN, LOADED, ONWARD, REPLY, SEEN_STEP_NS, Stage,
};
use dormouse_ebpf::packet::Packet;

use super::nat::Way;
use super::rewrite::{End, replace};
use super::send::{NEXT, PASS, refused, send_on, send_to};
use super::standing::own_reply;
use super::tables::{Kernel, Scratch};
use super::{count, tables};

/// Does with a packet what its flow says.
#[inline(never)]
pub(crate) fn follow(
    ctx: &TcContext,
    scratch: &mut Scratch,
    flow: *mut Flow,
    config: &Config,
    way: Way,
) -> i32 {
    refresh(flow);
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    scratch.flow = unsafe { *flow };
    if scratch.flow.is(REPLY) {
        replied(scratch, flow);
    } else {
        if scratch.flow.is(HIDDEN)
            && let Some(reply) = own_reply(scratch, flow)
        {
            went_on(reply, scratch);
        }
        counted(scratch, flow);
    }
    if scratch.flow.is(ONWARD) {
        return send_on(
            ctx,
            &scratch.packet,
            config.uplink,
            Some(&scratch.flow.target),
        );
    }
    let (packet, flow) = (&scratch.packet, &scratch.flow);
    if replace(ctx, packet, End::Target, &flow.target, flow.target_port).is_none()
        || replace(ctx, packet, End::Source, &flow.source, flow.source_port).is_none()
    {
        return refused();
    }
    if matches!(way, Way::Out) && !flow.is(REPLY) {
        return turn_to(ctx, packet, &flow.target, config);
    }
    deliver(ctx, packet, &flow.target, config, way)
}

/// Sends what is leaving already by the interface that leads to its new target.
#[inline(always)]
fn turn_to(ctx: &TcContext, packet: &Packet, target: &[u8; 16], config: &Config) -> i32 {
    // SAFETY: a field of the context.
    let interface = unsafe { (*ctx.skb.skb).ifindex };
    let Some(pod) = tables::PODS.get_ptr(target) else {
        if interface == config.uplink {
            return NEXT;
        }
        return send_on(ctx, packet, config.uplink, None);
    };
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let (link, mac) = unsafe { ((*pod).ifindex, (*pod).mac) };
    if interface == link {
        return NEXT;
    }
    send_to(ctx, link, &mac)
}

/// Leaves a packet to the kernel if it is for this node or its pods, else sends it out.
#[inline(always)]
pub(crate) fn deliver(
    ctx: &TcContext,
    packet: &Packet,
    target: &[u8; 16],
    config: &Config,
    way: Way,
) -> i32 {
    if matches!(way, Way::Out) {
        return NEXT;
    }
    let here = if packet.v4 == 1 {
        tables::PODS.get_ptr(target).is_some()
    } else {
        config.is_local(target)
    };
    if here || is_local(&Kernel, config, target) {
        return PASS;
    }
    send_on(ctx, packet, config.uplink, config.via(target))
}

/// Counts connections to backends; an app's on this node also for the app.
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

/// Notes that the other side answered, or ended the connection.
#[inline(always)]
fn replied(scratch: &mut Scratch, flow: *mut Flow) {
    if !scratch.packet.closes() {
        return;
    }
    // SAFETY: an aligned word of a map value.
    unsafe { (&raw mut (*flow).stage).write_volatile(Stage::Ended as u32) };
    scratch.back = scratch.key.answered(&scratch.flow);
    if !scratch.flow.is(ACTIVATED)
        && let Some(forward) = tables::flow(&scratch.back)
        && is_of(forward, &scratch.flow)
    {
        count::flow_closed(forward);
    }
}

/// The flow there leads to the backend that these replies come from.
#[inline(always)]
fn is_of(forward: *const Flow, reply: &Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (backend, generation) = unsafe { ((*forward).backend, (*forward).generation) };
    backend == reply.backend && generation == reply.generation
}

/// Notes on the flow of the replies how far its client has come.
#[inline(always)]
fn went_on(reply: *mut Flow, scratch: &Scratch) {
    refresh(reply);
    // SAFETY: an aligned word of a map value; a lost update is made up for by the next packet.
    unsafe {
        let stage = &raw mut (*reply).stage;
        stage.write_volatile(Stage::after(stage.read_volatile(), &scratch.packet));
    }
}

/// Notes that the flow is in use.
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
