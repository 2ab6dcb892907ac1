//! What becomes of a packet: as its flow was decided, or decided now.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Answer, Choice, NO_BACKEND, Tables, decide, is_local, to_activator};
use dormouse_ebpf::flow::{
    ACTIVATED, ENDED, Flow, FlowKey, HIDDEN, ONWARD, QUIET_NS, REPLY, SEEN_STEP_NS, SERVICE, Stage,
    nat_port,
};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{FIRST, Packet, Read, TCP, UDP, read};
use dormouse_ebpf::pick::flow_hash;
use dormouse_ebpf::service::Route;
use dormouse_ebpf::trace::Telling;
use dormouse_ebpf::verdict::Verdict;

use super::rewrite::{End, Frame, NEXT, PASS, dropped, refused, replace, send_on, send_to};
use super::tables::{Kernel, Scratch};
use super::{count, errors, fragments, refuse, tables, trace, wake};

/// How often a port of the node's own is drawn before the packet is dropped.
const NAT_TRIES: u32 = 16;

/// By which hook a packet comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From outside, by the uplink.
    Uplink,
    /// From a pod of this node.
    Pod,
    /// On its way out already, by the uplink.
    Out,
}

/// What becomes of a packet that has been read.
#[inline(always)]
pub(crate) fn handle(ctx: &TcContext, scratch: &mut Scratch, found: Read, way: Way) -> i32 {
    let Some(config) = tables::config() else {
        return NEXT;
    };
    match found {
        Read::Other => return NEXT,
        Read::Malformed => return dropped(Verdict::DroppedMalformed, NO_SLOT),
        Read::Error => return errors::translate(ctx, scratch, config, way),
        Read::Fragment => {
            if !fragments::recall(&mut scratch.packet) {
                return unseen(scratch, config);
            }
        }
        Read::Transport => {
            if scratch.packet.is_martian() {
                return dropped(Verdict::DroppedMartian, NO_SLOT);
            }
            if scratch.packet.fragment == FIRST {
                fragments::remember(&scratch.packet);
            }
        }
    }
    transport(ctx, scratch, config, way)
}

/// What leaves by the uplink: an answer has the name that its client knows, and addresses that only a service could have
/// lead nowhere.
#[inline(always)]
pub(crate) fn out(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    let Some(config) = tables::config() else {
        return NEXT;
    };
    let verdict = named_again(ctx, scratch, found, config);
    if verdict == NEXT && config.is_service_address(&scratch.packet.target) {
        return dropped(Verdict::DroppedUnallocated, NO_SLOT);
    }
    verdict
}

/// What reaches a pod: only the node itself can have answered to a name that no other hook has seen.
#[inline(always)]
pub(crate) fn into_pod(ctx: &TcContext, scratch: &mut Scratch, found: Read) -> i32 {
    match tables::config() {
        Some(config) if is_local(&Kernel, config, &scratch.packet.source) => {
            named_again(ctx, scratch, found, config)
        }
        _ => NEXT,
    }
}

/// Gives what the node sends the name that its client knows, and leads what a socket still sends to a backend that is
/// gone to the one that took its place.
#[inline(always)]
fn named_again(ctx: &TcContext, scratch: &mut Scratch, found: Read, config: &Config) -> i32 {
    match found {
        Read::Transport => {}
        Read::Fragment if fragments::recall(&mut scratch.packet) => {}
        Read::Error => return errors::translate(ctx, scratch, config, Way::Out),
        _ => return NEXT,
    }
    if scratch.packet.fragment == FIRST {
        fragments::remember(&scratch.packet);
    }
    scratch.key = FlowKey::of(&scratch.packet);
    match tables::FLOWS.get_ptr_mut(&scratch.key) {
        Some(flow) if is_reply(flow) || is_led_anew(flow) => {
            follow(ctx, scratch, flow, config, Way::Out)
        }
        _ => NEXT,
    }
}

/// The flow leads what a socket of the node sends: only such flows begin on the way out.
#[inline(always)]
fn is_led_anew(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).kind == SERVICE }
}

/// Reads a packet into the room of its program.
#[inline(always)]
pub(crate) fn look(ctx: &TcContext, scratch: &mut Scratch) -> Read {
    // What is no IP packet leaves the rest as it was.
    scratch.packet.source = [0; 16];
    scratch.packet.v4 = 0;
    scratch.packet.protocol = 0;
    read(&Frame(ctx), &mut scratch.packet)
}

/// A later fragment without its first: to a VIP it can go nowhere.
#[inline(always)]
fn unseen(scratch: &Scratch, config: &Config) -> i32 {
    let target = &scratch.packet.target;
    if config.vip(target).is_some() || config.is_service_address(target) {
        return dropped(Verdict::DroppedFragment, NO_SLOT);
    }
    NEXT
}

/// TCP, UDP, SCTP: a new connection is always decided anew.
#[inline(always)]
fn transport(ctx: &TcContext, scratch: &mut Scratch, config: &Config, way: Way) -> i32 {
    scratch.key = FlowKey::of(&scratch.packet);
    let known = tables::FLOWS.get_ptr_mut(&scratch.key);
    if let Some(flow) = known
        && (!scratch.packet.opens() || is_reply(flow))
    {
        match standing(scratch, flow, config) {
            Standing::Follow => return follow(ctx, scratch, flow, config, way),
            Standing::Reset => {
                tables::note(Verdict::Reset);
                return refuse::reset(ctx, &scratch.packet);
            }
            Standing::Refuse => {
                tables::note(Verdict::Rejected);
                return refuse::unreachable(ctx, scratch);
            }
            Standing::Anew => {}
        }
    }
    let answer = ask(scratch, way);
    let verdict = match answer {
        Answer::Pass => {
            if known.is_some() {
                let _ = tables::FLOWS.remove(&scratch.key);
            }
            if scratch.packet.begins() {
                take_ends(scratch);
            }
            return NEXT;
        }
        Answer::Drop(verdict) => return dropped(verdict, scratch.choice.slot),
        Answer::Reject(verdict) => {
            tables::note_drop(verdict, scratch.choice.slot);
            return refuse::refuse(ctx, scratch);
        }
        Answer::Go(verdict) => verdict,
    };
    go(ctx, scratch, known, verdict, config, way)
}

/// A conversation that is led nowhere may have the ends of one that was, to the same backend: its answers are its own.
#[inline(never)]
fn take_ends(scratch: &mut Scratch) {
    scratch.back = scratch.key.reversed();
    let Some(reply) = tables::FLOWS.get_ptr(&scratch.back) else {
        return;
    };
    if !is_reply(reply) || !scratch.packet.opens() && is_in_use(scratch, reply) {
        return;
    }
    let _ = tables::FLOWS.remove(&scratch.back);
}

/// Whether the client of these replies has sent something lately.
#[inline(always)]
fn is_in_use(scratch: &Scratch, reply: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let client = scratch.back.answered(unsafe { &*reply });
    tables::FLOWS.get_ptr(&client).is_some_and(|flow| {
        // SAFETY: an aligned word of a map value.
        let seen_ns = unsafe { (&raw const (*flow).seen_ns).read_volatile() };
        tables::now_ns().wrapping_sub(seen_ns) < QUIET_NS
    })
}

/// What becomes of a known flow's packet.
enum Standing {
    Follow,
    Anew,
    Reset,
    Refuse,
}

#[inline(always)]
fn is_reply(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).is(REPLY) }
}

/// Whether the flow may go on: its backend serves, and the node's port that it uses is still its own.
#[inline(always)]
fn standing(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> Standing {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, id, generation) = unsafe { ((*flow).kind, (*flow).backend, (*flow).generation) };
    if kind & REPLY != 0 {
        return Standing::Follow;
    }
    if kind & ENDED != 0 {
        return ended(scratch, flow);
    }
    let serves = id == NO_BACKEND
        || Kernel
            .backend(id)
            .is_some_and(|backend| u32::from(backend.generation) == generation);
    if !serves && scratch.packet.protocol == UDP {
        tables::note(Verdict::Repicked);
        return Standing::Anew;
    }
    if !serves && kind & SERVICE != 0 {
        return Standing::Reset;
    }
    if kind & HIDDEN != 0 && own_reply(scratch, flow).is_none() {
        return Standing::Anew;
    }
    // SAFETY: as above.
    let target = unsafe { &(*flow).target };
    let here = kind & (SERVICE | ACTIVATED | ONWARD) == 0 && config.is_local(target);
    if here && tables::PODS.get_ptr(target).is_none() {
        return Standing::Anew;
    }
    Standing::Follow
}

/// A flow that leads nowhere is refused as long as its socket says so; after that, its ends may be somebody else's.
#[inline(always)]
fn ended(scratch: &Scratch, flow: *const Flow) -> Standing {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    let said_ns = unsafe { (*flow).seen_ns };
    if tables::now_ns().wrapping_sub(said_ns) > SEEN_STEP_NS {
        Standing::Anew
    } else if scratch.packet.protocol == TCP {
        Standing::Reset
    } else {
        Standing::Refuse
    }
}

/// The flow of the replies to a packet whose sender hides; none when another connection has the port by now.
#[inline(always)]
fn own_reply(scratch: &mut Scratch, flow: *const Flow) -> Option<*mut Flow> {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    scratch.back = scratch.key.answered(unsafe { &*flow });
    let reply = tables::FLOWS.get_ptr_mut(&scratch.back)?;
    // SAFETY: as above.
    let (client, port) = unsafe { (&(*reply).target, (*reply).target_port) };
    (*client == scratch.key.source && port == scratch.key.source_port).then_some(reply)
}

/// Decides a new connection.
#[inline(never)]
fn ask(scratch: &mut Scratch, way: Way) -> Answer {
    let packet = &scratch.packet;
    scratch.asked.source = packet.source;
    scratch.asked.target = packet.target;
    scratch.asked.port = packet.target_port;
    scratch.asked.protocol = packet.protocol;
    scratch.asked.by_node = matches!(way, Way::Out);
    scratch.asked.alike = matches!(way, Way::Uplink);
    scratch.asked.hash = flow_hash(
        &packet.source,
        packet.source_port,
        &packet.target,
        packet.target_port,
        packet.protocol,
    );
    decide(
        &Telling(Kernel, trace::step),
        &scratch.asked,
        &mut scratch.choice,
    )
}

/// Begins a flow where the choice leads.
#[inline(always)]
fn go(
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
            && matches!(standing(scratch, flow, config), Standing::Follow)
        {
            return follow(ctx, scratch, flow, config, way);
        }
        count::flow_closed(flow);
    }
    if !record(scratch, config, way) {
        return dropped(Verdict::DroppedNoPort, scratch.choice.slot);
    }
    match tables::FLOWS.get_ptr_mut(&scratch.key) {
        Some(flow) => follow(ctx, scratch, flow, config, way),
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
        return tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok();
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
    let _ = tables::FLOWS.insert(&scratch.back, &scratch.reply, 0);
    tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok()
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
        scratch.flow.source_port = nat_port(tables::random());
        scratch.back = scratch.key.answered(&scratch.flow);
        if take_port(scratch, now) {
            return tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok();
        }
        tries += 1;
    }
    false
}

/// Writes down the flow of the replies, unless its port belongs to a connection that may go on.
#[inline(always)]
fn take_port(scratch: &Scratch, now_ns: u64) -> bool {
    let (key, reply) = (&scratch.back, &scratch.reply);
    if let Some(before) = tables::FLOWS.get_ptr(key) {
        // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
        let before = unsafe { &*before };
        return before.gives_port(now_ns) && tables::FLOWS.insert(key, reply, 0).is_ok();
    }
    tables::FLOWS
        .insert(key, reply, u64::from(BPF_NOEXIST))
        .is_ok()
}

/// Does with a packet what its flow says.
#[inline(never)]
fn follow(
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
        if scratch.flow.kind == 0 {
            counted(&scratch.packet, flow);
        }
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
    if config.is_local(target) || is_local(&Kernel, config, target) {
        return PASS;
    }
    send_on(ctx, packet, config.uplink, config.via(target))
}

/// Counts connections to an app's pod on this node.
#[inline(always)]
fn counted(packet: &Packet, flow: *mut Flow) {
    if packet.opens() {
        count::flow_opened(flow);
    } else if packet.closes() {
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
    if scratch.flow.kind == REPLY
        && let Some(forward) = tables::FLOWS.get_ptr_mut(&scratch.back)
    {
        count::flow_closed(forward);
    }
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
