//! Begins a flow: writes down what becomes of its packets, there and back.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Choice, NO_BACKEND, to_activator};
use dormouse_ebpf::flow::{
    ACTIVATED, Flow, HIDDEN, LOADED, ONWARD, REPLY, SERVICE, Stage, nat_port,
};
use dormouse_ebpf::service::Route;
use dormouse_ebpf::verdict::Verdict;

use super::follow::follow;
use super::nat::Way;
use super::send::dropped;
use super::standing::{Standing, own_reply, standing};
use super::tables::Scratch;
use super::{count, tables, wake};

/// How often a port of the node's own is drawn before the packet is dropped.
const NAT_TRIES: u32 = 16;

/// Begins a flow where the choice leads.
#[inline(always)]
pub(crate) fn go(
    ctx: &TcContext,
    scratch: &mut Scratch,
    known: Option<*mut Flow>,
    verdict: Option<Verdict>,
    config: &Config,
    way: Way,
) -> i32 {
    if !scratch.choice.service {
        app(scratch, config);
    } else if scratch.choice.group != 0 {
        tables::keep(&scratch.packet.source, &scratch.choice);
    }
    if let Some(verdict) = verdict {
        tables::note(verdict);
    }
    if let Some(flow) = known {
        if leads_to(flow, &scratch.choice)
            && is_answered(scratch, flow)
            && matches!(standing(scratch, flow, config), Standing::Follow)
        {
            return follow(ctx, scratch, flow, config, way);
        }
        count::flow_closed(flow);
    }
    if !record(scratch, config, way) {
        return dropped(Verdict::DroppedNoPort, scratch.choice.slot);
    }
    match tables::flow(&scratch.key) {
        Some(flow) => {
            // Whatever it begins with, but for a connection's end.
            if scratch.flow.loads() && !scratch.packet.closes() {
                count::flow_opened(flow, LOADED);
            }
            follow(ctx, scratch, flow, config, way)
        }
        None => dropped(Verdict::TableFull, scratch.choice.slot),
    }
}

/// An app is woken by who asks for it; a pod of this node that is gone cannot be gone to: the activator then, who knows
/// what else there is.
#[inline(always)]
fn app(scratch: &mut Scratch, config: &Config) {
    let route = Route::unpack(scratch.choice.route);
    let asked_port = scratch.packet.target_port;
    let other_port = route.present && route.port != 0 && route.port != asked_port;
    if scratch.packet.begins() && !other_port {
        wake::wake(scratch.choice.slot, route);
    }
    let choice = &mut scratch.choice;
    if choice.backend != NO_BACKEND
        && config.is_local(&choice.address)
        && tables::PODS.get_ptr(&choice.address).is_none()
    {
        tables::note(Verdict::NoBackend);
        to_activator(config, choice.slot, asked_port, choice);
    }
}

/// The flow leads to what was chosen: a repeated SYN keeps its tuple and is not counted again.
#[inline(always)]
fn leads_to(flow: *const Flow, choice: &Choice) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    unsafe {
        (*flow).target == choice.address
            && (*flow).generation == choice.generation
            && ((*flow).target_port == choice.port || (*flow).is(ONWARD))
    }
}

/// The flow of the replies is there still: a full table may have let go of it alone, and answers would keep their names.
#[inline(always)]
fn is_answered(scratch: &mut Scratch, flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    let onward = unsafe { (*flow).is(ONWARD) };
    onward || own_reply(scratch, flow).is_some()
}

/// Writes down a new flow and the flow of its replies. False if the node had no port for it.
#[inline(never)]
fn record(scratch: &mut Scratch, config: &Config, way: Way) -> bool {
    let (packet, choice) = (&scratch.packet, &scratch.choice);
    let activated = choice.backend == NO_BACKEND;
    let mut kind = if choice.service { SERVICE } else { 0 };
    if activated {
        kind |= ACTIVATED;
    }
    if choice.hide || activated && matches!(way, Way::Uplink) {
        kind |= HIDDEN;
    }
    // Another node's pod answers for the VIP itself: the packet goes there as it is.
    if kind == 0 && matches!(way, Way::Uplink) && !config.is_local(&choice.address) {
        kind = ONWARD;
    }
    let now = tables::now_ns();
    scratch.flow = Flow {
        source: packet.source,
        target: choice.address,
        source_port: packet.source_port,
        target_port: choice.port,
        kind,
        slot: choice.slot,
        backend: choice.backend,
        generation: choice.generation,
        stage: Stage::Asked as u32,
        open: 0,
        seen_ns: now,
    };
    note_begin(scratch);
    if kind & ONWARD != 0 {
        return tables::begin_flow(&scratch.key, &scratch.flow, BPF_ANY);
    }
    scratch.reply = scratch.flow;
    scratch.reply.source = scratch.packet.target;
    scratch.reply.source_port = scratch.packet.target_port;
    scratch.reply.target = scratch.packet.source;
    scratch.reply.target_port = scratch.packet.source_port;
    scratch.reply.kind |= REPLY;
    if kind & HIDDEN != 0 {
        return hidden(scratch, config, now);
    }
    scratch.back = scratch.key.answered(&scratch.flow);
    let _ = tables::begin_flow(&scratch.back, &scratch.reply, BPF_ANY);
    tables::begin_flow(&scratch.key, &scratch.flow, BPF_ANY)
}

#[inline(always)]
fn note_begin(scratch: &Scratch) {
    let kind = scratch.flow.kind;
    if kind & ACTIVATED == 0 {
        tables::note(if kind & SERVICE != 0 {
            Verdict::ServiceServed
        } else if kind & ONWARD != 0 {
            Verdict::ServedRemote
        } else {
            Verdict::ServedLocal
        });
    }
}

/// A flow whose source hides takes a port of the node's own address: the first of a few that is free, or whose
/// connection has ended.
#[inline(always)]
fn hidden(scratch: &mut Scratch, config: &Config, now: u64) -> bool {
    scratch.flow.source = *config.node_address_for(&scratch.packet.source);
    if scratch.flow.source == [0; 16] {
        return false;
    }
    let mut tries = 0;
    while tries < NAT_TRIES {
        scratch.flow.source_port = nat_port(tables::random(), config.ports());
        scratch.back = scratch.key.answered(&scratch.flow);
        if take_port(scratch, now) {
            return tables::begin_flow(&scratch.key, &scratch.flow, BPF_ANY);
        }
        tries += 1;
    }
    false
}

/// Writes down the flow of the replies, unless its port belongs to a connection that may go on.
#[inline(always)]
fn take_port(scratch: &Scratch, now_ns: u64) -> bool {
    let (key, reply) = (&scratch.back, &scratch.reply);
    if let Some(before) = tables::flow(key) {
        // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
        let before = unsafe { &*before };
        return before.gives_port(key.protocol, now_ns) && tables::begin_flow(key, reply, BPF_ANY);
    }
    tables::begin_flow(key, reply, BPF_NOEXIST)
}
