//! Translation of a packet by its flow: DNAT and SNAT for a client's packets, reverse NAT for replies.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::is_node_address;
use dormouse_ebpf::flow::{
    BY_HOST, COUNTED, FORWARDED, Flow, LOADED, MASQUERADED, OPENING, REPLY, REVOKED, TO_ACTIVATOR,
};
use dormouse_ebpf::maps::Pod;
use dormouse_ebpf::packet::Packet;
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::trace::Step;
use dormouse_ebpf::verdict::Verdict;

use super::by_route::forward_by_route;
use super::env::{Env, Hook};
use super::established::{is_current, opposite};
use super::fib_forward::fits;
use super::rewrite::translate;
use super::scratch::Scratch;
use super::tables::{self, Kernel};
use super::transmit::{DROP, NEXT, PASS, decrement_hop_limit, forward, redirect_to_mac, refused};
use super::{count, flows, found, trace, verdicts};

/// Translates a packet by its flow, counts it, and sends it on.
#[inline(never)]
pub(crate) fn apply(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow, env: Env<'_>) -> i32 {
    let now_ns = scratch.recent_ns();
    let is_due = flows::refresh(flow, now_ns);
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    scratch.flow = unsafe { *flow };
    // Both entries are of use to what follows a request or an answer; a bulk of data pays once in a while.
    let keeps_both = is_due || scratch.packet.pushes() && !found::recently(&scratch.flow);
    let stage = Stage(scratch.flow.stage);
    if scratch.flow.is(REPLY) {
        advance(flow, stage, stage.after_backend(&scratch.packet));
        replied(scratch, keeps_both, env.config);
    } else {
        let after = stage.after_client(&scratch.packet);
        advance(flow, stage, after);
        let opens_or_closes = scratch.packet.opens() || scratch.packet.closes();
        if !scratch.flow.is(MASQUERADED) {
            if keeps_both {
                keep_reply(scratch, env.config);
            }
        } else if (is_due || opens_or_closes || after != stage)
            && let Some(reply) = opposite(scratch, flow)
        {
            advance_port(reply, scratch, now_ns);
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
    if translate(ctx, packet, flow).is_none() {
        return refused();
    }
    if matches!(env.hook, Hook::Egress) && !flow.is(REPLY) {
        return redirect_to_target(ctx, packet, &flow.target, env.config);
    }
    deliver(ctx, packet, flow, env)
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

/// Sends a translated packet to its pod; leaves it to the kernel if its target is this node, or a pod of another CNI plugin; else sends
/// it out, to a client by the uplink, to a backend by the host's route. `flow` has its ends.
#[inline(always)]
pub(crate) fn deliver(ctx: &TcContext, packet: &Packet, flow: &Flow, env: Env<'_>) -> i32 {
    let (Env { config, hook }, target) = (env, &flow.target);
    if matches!(hook, Hook::Egress) {
        return NEXT;
    }
    if flow.kind & (BY_HOST | REPLY) == BY_HOST {
        return PASS;
    }
    let may_be_here = packet.v4 == 1 || config.is_local(target);
    if may_be_here && let Some(pod) = tables::PODS.get_ptr(target) {
        return into_pod(ctx, packet, pod, || {
            is_node_address(&Kernel, config, &flow.source)
        });
    }
    if may_be_here && packet.v4 == 0 || is_node_address(&Kernel, config, target) {
        return PASS;
    }
    match config.via(target) {
        None if !flow.is(REPLY) => forward_by_route(ctx, packet, flow, config.uplink),
        via => forward(ctx, packet, config.uplink, via),
    }
}

/// Sends a packet to a pod by the host's end of its link. What it answers leaves by the uplink, or for another pod, and not through the
/// host's stack either: the host's conntrack would see one direction only, and rules that drop what it takes for INVALID, as
/// kube-proxy's do, would end the connection. The host gets what it has to report to the sender, and packets to a pod whose answers
/// no program of its link sees.
#[inline(always)]
fn into_pod(
    ctx: &TcContext,
    packet: &Packet,
    pod: *const Pod,
    is_from_node: impl FnOnce() -> bool,
) -> i32 {
    // SAFETY: a map value, which lives as long as the program runs; the agent replaces it as a whole.
    let (link, mac, seen) = unsafe { ((*pod).ifindex, (*pod).mac, (*pod).seen) };
    let expires = packet.hop_limit <= 1;
    let is_deliverable = seen != 0 && !expires && fits(ctx, packet, link);
    // The kernel takes an IPv4 packet with an address of its own as the source for a martian, and drops it.
    if !is_deliverable && (packet.v4 == 0 || !is_from_node()) {
        return PASS;
    }
    if expires {
        verdicts::note(Verdict::DroppedHops);
        return DROP;
    }
    if decrement_hop_limit(ctx, packet).is_none() {
        return refused();
    }
    trace::step(Step::Direct, link.into(), 1);
    redirect_to_mac(ctx, link, &mac)
}

/// Counts a connection's begin and end as load of its backend, and, for an app's pod on this node, of the VIP.
#[inline(always)]
fn counted(scratch: &Scratch, flow: *mut Flow) {
    if !scratch.flow.loads() {
        return;
    }
    if scratch.packet.opens() {
        let app = if scratch.flow.kind & !OPENING == 0 {
            COUNTED
        } else {
            0
        };
        count::flow_opened(flow, LOADED | app);
    } else if scratch.packet.closes() {
        count::flow_closed(flow);
    }
}

/// Notes the end of a connection that the backend closes. Of one in use the client's flow is looked up (`keeps_both`), so that
/// a full table evicts neither direction, and inserted again if it was evicted.
#[inline(always)]
fn replied(scratch: &mut Scratch, keeps_both: bool, config: &Config) {
    let closes = scratch.packet.closes();
    if !closes && !keeps_both {
        return;
    }
    scratch.back = scratch.key.reply(&scratch.flow);
    match flows::find(&scratch.back) {
        Some(forward) => {
            found::note(&scratch.flow);
            if closes && !scratch.flow.is(TO_ACTIVATOR) && is_of(forward, &scratch.flow) {
                count::flow_closed(forward);
            }
        }
        None if !closes => restore_forward(scratch, config),
        None => {}
    }
}

/// Inserts the client's flow again, which a full table has evicted alone: its next packet would begin a connection, to another
/// backend or from another NAT port. Not during a take-over, which moves flows one by one. `scratch.back` is its key.
#[inline(never)]
fn restore_forward(scratch: &mut Scratch, config: &Config) {
    let known = is_current(scratch.flow.backend, scratch.flow.generation);
    if !known || !config.forwarding.get().is_alone() {
        return;
    }
    scratch.fill_reply();
    let _ = flows::insert(&scratch.back, &scratch.reply, BPF_NOEXIST);
}

/// Keeps the reply flow of a connection in use: its lookup marks it as used, too; one that a full table has evicted is
/// inserted again. Not during a take-over, which moves flows one by one.
#[inline(always)]
fn keep_reply(scratch: &mut Scratch, config: &Config) {
    if scratch.flow.is(FORWARDED | REVOKED) {
        return;
    }
    scratch.back = scratch.key.reply(&scratch.flow);
    if flows::find(&scratch.back).is_some() {
        found::note(&scratch.flow);
        return;
    }
    if !config.forwarding.get().is_alone() {
        return;
    }
    scratch.fill_reply();
    let _ = flows::insert(&scratch.back, &scratch.reply, BPF_NOEXIST);
}

/// Whether the forward flow's backend is the one that these replies come from.
#[inline(always)]
fn is_of(forward: *const Flow, reply: &Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (backend, generation) = unsafe { ((*forward).backend, (*forward).generation) };
    backend == reply.backend && generation == reply.generation
}

/// Advances the stage of a connection through a NAT port, whose reply flow has the packets of both sides.
#[inline(always)]
fn advance_port(reply: *mut Flow, scratch: &Scratch, now_ns: u64) {
    flows::refresh(reply, now_ns);
    // SAFETY: an aligned word of a map value.
    let stage = Stage(unsafe { (&raw const (*reply).stage).read_volatile() });
    advance(reply, stage, stage.after_client(&scratch.packet));
}

/// Stores the stage, if it has changed: few packets of a connection change it.
#[inline(always)]
fn advance(flow: *mut Flow, before: Stage, after: Stage) {
    if before != after {
        // SAFETY: an aligned word of a map value; the next packet repeats a lost update.
        unsafe { (&raw mut (*flow).stage).write_volatile(after.0) };
    }
}
