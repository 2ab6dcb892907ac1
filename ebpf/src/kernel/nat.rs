//! The way of a packet: translated by its flow, or decided now.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Decision, decide, may_be_frontend};
use dormouse_ebpf::flow::{Flow, FlowKey, flow_hash};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{FIRST, Packet, Read, read};
use dormouse_ebpf::service::{Route, Target};
use dormouse_ebpf::stage::{Stage, UDP_IDLE_NS};
use dormouse_ebpf::traced::Traced;
use dormouse_ebpf::verdict::Verdict;
use dormouse_ebpf::wake_limit::WakeSource;

use super::apply_flow::apply;
use super::env::{Env, Hook};
use super::established::{Validity, is_current, is_reply, validate};
use super::fib_forward::fib_forward;
use super::new_flow::create;
use super::other_protocols::end_at_vip;
use super::pod_link::link_of;
use super::scratch::Scratch;
use super::skb::frame;
use super::tables::{self, Kernel};
use super::transmit::{NEXT, dropped};
use super::{clock, count, flows, fragments, icmp_errors, opening, reject, trace, verdicts, wake};

/// Handles a valid packet that has been parsed. Returns the program's verdict.
#[inline(always)]
pub(crate) fn handle(ctx: &TcContext, scratch: &mut Scratch, found: Read, hook: Hook) -> i32 {
    let Some(config) = tables::config() else {
        return NEXT;
    };
    let env = Env { config, hook };
    match found {
        Read::Other | Read::Malformed => return end_at_vip(ctx, scratch, config),
        Read::Error => {
            let verdict = icmp_errors::translate(ctx, scratch, env);
            return if verdict == NEXT {
                end_at_vip(ctx, scratch, config)
            } else {
                verdict
            };
        }
        Read::Fragment => {
            if !fragments::load_ports(&mut scratch.packet) {
                return unknown_fragment(scratch, config);
            }
        }
        Read::Transport => {
            if scratch.packet.fragment == FIRST {
                fragments::store_ports(&scratch.packet);
            }
        }
    }
    transport(ctx, scratch, env)
}

/// Parses a packet into the scratch of its program.
#[inline(always)]
pub(crate) fn parse(ctx: &TcContext, scratch: &mut Scratch) -> Read {
    read(&frame(ctx), &mut scratch.packet)
}

/// Handles a later fragment whose first one was not seen: without ports, one to a frontend cannot be translated.
#[inline(always)]
fn unknown_fragment(scratch: &Scratch, config: &Config) -> i32 {
    let target = &scratch.packet.target;
    if config.is_vip(target) {
        return dropped(Verdict::DroppedFragment, NO_SLOT);
    }
    NEXT
}

/// Handles TCP, UDP and SCTP. A packet that opens a connection is decided even if its flow is known.
#[inline(always)]
fn transport(ctx: &TcContext, scratch: &mut Scratch, env: Env<'_>) -> i32 {
    let config = env.config;
    scratch.key = FlowKey::of(&scratch.packet);
    let known = flows::find(&scratch.key);
    if let Some(flow) = known
        && continues(&scratch.packet, flow)
    {
        match validate(scratch, flow, config) {
            Validity::Valid => {
                let flow = opening::advance(ctx, scratch, flow);
                return apply(ctx, scratch, flow, env);
            }
            Validity::Reset => {
                verdicts::note(Verdict::Reset);
                return reject::reset(ctx, scratch);
            }
            Validity::Reject => {
                verdicts::note(Verdict::Rejected);
                return reject::unreachable(ctx, scratch);
            }
            Validity::Reselect => {}
        }
    }
    let target = &scratch.packet.target;
    let is_frontend = may_be_frontend(&Kernel, config, target) || config.is_service_address(target);
    let decision = if is_frontend && !(known.is_none() && is_left(&scratch.packet, config)) {
        decide_packet(scratch, env.hook)
    } else {
        Decision::Pass
    };
    match decision {
        Decision::Pass => {
            if let Some(flow) = known {
                count::flow_closed(flow);
                flows::remove(&scratch.key);
            }
            if scratch.packet.begins() {
                evict_stale_reply(scratch);
            }
            fib_forward(ctx, scratch, &scratch.packet, env)
        }
        Decision::Drop(verdict) => dropped(verdict, scratch.choice.slot),
        Decision::Reject(verdict) => {
            verdicts::note_drop(verdict, scratch.choice.slot);
            reject::reject(ctx, scratch)
        }
        // No connection begins at a VIP: its replies would be sent to the VIP's own backends.
        Decision::Forward(_) if config.is_vip(&scratch.packet.source) => {
            dropped(Verdict::DroppedMartian, scratch.choice.slot)
        }
        Decision::Forward(_) if !wake_app(ctx, scratch, env.hook) => {
            let route = Route::unpack(scratch.choice.route);
            let slot = wake::counted_slot(scratch.choice.slot, route);
            dropped(Verdict::DroppedWakeLimit, slot)
        }
        Decision::Forward(verdict) => {
            if let Some(verdict) = verdict {
                verdicts::note(verdict);
            }
            create(ctx, scratch, known, env)
        }
    }
}

/// Whether a packet is one of its known flow's connection. One that opens a connection is so if it is a reply, and while the flow's own one
/// is established with a backend that is still one: anyone may forge it, and the backend answers it with what it expects (a challenge ACK,
/// RFC 5961 4).
#[inline(always)]
pub(crate) fn continues(packet: &Packet, flow: *const Flow) -> bool {
    !packet.opens() || is_reply(flow) || is_established(flow)
}

/// Whether a flow's connection is established, as far as its own side's packets show, with a backend that is still one.
#[inline(always)]
fn is_established(flow: *const Flow) -> bool {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs; the others never change.
    let (stage, backend, generation) = unsafe {
        let stage = Stage((&raw const (*flow).stage).read_volatile());
        (stage, (*flow).backend, (*flow).generation)
    };
    stage.is_established() && !opening::is_opening(flow) && is_current(backend, generation)
}

/// Wakes the app of a new connection. False if the sender has used up its wakes.
#[inline(always)]
fn wake_app(ctx: &TcContext, scratch: &Scratch, hook: Hook) -> bool {
    let (packet, choice) = (&scratch.packet, &scratch.choice);
    if choice.service || !packet.begins() {
        return true;
    }
    let target = Target {
        port: packet.target_port,
        protocol: packet.protocol,
    };
    let source = || match hook {
        Hook::Pod => WakeSource::pod(link_of(ctx)),
        _ => WakeSource::outside(&packet.source),
    };
    let route = Route::unpack(choice.route);
    wake::wake((choice.slot, route), target, &packet.source, source)
}

/// Whether a packet to a Service without a flow is left to the host, whose conntrack may have its connection: another proxy's rules
/// have translated that one before the programs came into force. Of UDP nothing shows whether a packet is the first one.
#[inline(always)]
pub(crate) fn is_left(packet: &Packet, config: &Config) -> bool {
    config.beside_proxy != 0 && !packet.begins() && config.vip(&packet.target).is_none()
}

/// Removes the flows of an earlier connection that had the ends of this one after its translation. This one is not translated,
/// and its replies must not be either.
#[inline(never)]
fn evict_stale_reply(scratch: &mut Scratch) {
    scratch.back = scratch.key.reversed();
    let Some(reply) = flows::find(&scratch.back) else {
        return;
    };
    if !is_reply(reply) {
        return;
    }
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let client = scratch.back.reply(unsafe { &*reply });
    let forward = flows::find(&client);
    if !scratch.packet.opens() && forward.is_some_and(is_in_use) {
        return;
    }
    flows::remove(&scratch.back);
    if let Some(forward) = forward
        && is_translated_to(forward, &scratch.key)
    {
        count::flow_closed(forward);
        flows::remove(&client);
    }
}

/// Whether the client has sent a packet within [`UDP_IDLE_NS`].
#[inline(always)]
fn is_in_use(flow: *mut Flow) -> bool {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let seen_ns = unsafe { (&raw const (*flow).seen_ns).read_volatile() };
    clock::now_ns().wrapping_sub(seen_ns) < UDP_IDLE_NS
}

/// Whether the packets of a client's flow have these ends after their translation.
#[inline(always)]
fn is_translated_to(flow: *const Flow, ends: &FlowKey) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    unsafe {
        (*flow).source == ends.source
            && (*flow).source_port == ends.source_port
            && (*flow).target == ends.target
            && (*flow).target_port == ends.target_port
    }
}

/// Decides a new connection.
#[inline(never)]
fn decide_packet(scratch: &mut Scratch, hook: Hook) -> Decision {
    request(scratch, hook);
    decide(
        &Traced(Kernel, trace::step),
        &scratch.request,
        &mut scratch.choice,
    )
}

/// Fills the request for the packet's connection. Its key is that of the flow.
#[inline(always)]
pub(crate) fn request(scratch: &mut Scratch, hook: Hook) {
    let packet = &scratch.packet;
    scratch.request.source = packet.source;
    scratch.request.target = packet.target;
    scratch.request.port = packet.target_port;
    scratch.request.protocol = packet.protocol;
    scratch.request.from_node = false;
    scratch.request.consistent = matches!(hook, Hook::Uplink);
    scratch.request.hash = flow_hash(&scratch.key);
}
