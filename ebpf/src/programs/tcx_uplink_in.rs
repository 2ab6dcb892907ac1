//! What arrives from outside: to a VIP, or back from an activator. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::{Flow, FlowKey, FlowKind, SEEN_STEP_NS, Stage, nat_port};
use dormouse_ebpf::maps::Config;
use dormouse_ebpf::packet::transport;
use dormouse_ebpf::pick::flow_hash;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::choose::{self, Asked, Choice, Pick};
use crate::kernel::rewrite::{DROP, End, Frame, NEXT, PASS, refused, replace, send_on};
use crate::kernel::tables::Scratch;
use crate::kernel::{count, tables};

/// How often a source port towards an activator is drawn before the packet is dropped.
const NAT_TRIES: u32 = 16;

#[classifier]
fn tcx_uplink_in(ctx: TcContext) -> i32 {
    arrive(&ctx).unwrap_or(NEXT)
}

#[inline(always)]
fn arrive(ctx: &TcContext) -> Option<i32> {
    let scratch = tables::scratch_in()?;
    scratch.packet = transport(&Frame(ctx))?;
    scratch.key = FlowKey::of(&scratch.packet);
    let config = tables::config()?;
    match config.vip(&scratch.packet.target) {
        Some(vip) => Some(to_vip(ctx, scratch, vip, config)),
        None if scratch.packet.target == config.node_address => {
            from_activator(ctx, scratch, config)
        }
        None => None,
    }
}

/// A packet to a VIP: as its flow was decided, or decided now. A new connection is always decided anew.
#[inline(always)]
fn to_vip(ctx: &TcContext, scratch: &mut Scratch, vip: u32, config: &Config) -> i32 {
    let known = tables::FLOWS.get_ptr_mut(&scratch.key);
    if let Some(flow) = known
        && !scratch.packet.opens()
        && is_alive(scratch, flow, config)
    {
        return follow(ctx, scratch, flow, config);
    }
    let packet = &scratch.packet;
    let hash = flow_hash(
        &packet.source,
        packet.source_port,
        vip,
        packet.target_port,
        packet.protocol,
    );
    let asked = Asked {
        vip,
        port: packet.target_port,
        begins: packet.begins(),
        pick: Pick::Rendezvous(hash),
    };
    let Some(choice) = choose::choose(&asked, config) else {
        return DROP;
    };
    let choice = present(choice, vip, packet.target_port, config);
    if let Some(flow) = known {
        if leads_to(flow, &choice) && is_alive(scratch, flow, config) {
            return follow(ctx, scratch, flow, config);
        }
        count::flow_closed(flow);
    }
    if !record(scratch, vip, &choice, config) {
        tables::note(Verdict::DroppedNoPort);
        return DROP;
    }
    match tables::FLOWS.get_ptr_mut(&scratch.key) {
        Some(flow) => follow(ctx, scratch, flow, config),
        None => refused(),
    }
}

/// A pod of this node that is gone cannot be gone to: the activator then, who knows what else there is.
#[inline(always)]
fn present(choice: Choice, vip: u32, vip_port: u16, config: &Config) -> Choice {
    if choice.via.is_none()
        && config.is_local(&choice.address)
        && tables::PODS.get_ptr(&choice.address).is_none()
    {
        tables::note(Verdict::NoBackend);
        if let Some(activator) = choose::activator(vip, vip_port, config) {
            return activator;
        }
    }
    choice
}

/// The flow leads to what was chosen: a repeated SYN keeps its tuple and is not counted again.
#[inline(always)]
fn leads_to(flow: *const Flow, choice: &Choice) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    unsafe { (*flow).address == choice.address && (*flow).port == choice.port }
}

/// The pod of this flow still exists, as far as this node can know, or its port towards the activator is still its own.
#[inline(always)]
fn is_alive(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, address) = unsafe { ((*flow).kind, &(*flow).address) };
    if kind == FlowKind::ToActivator as u32 {
        return own_reply(scratch, flow, config).is_some();
    }
    kind != FlowKind::ToPod as u32 || tables::PODS.get_ptr(address).is_some()
}

/// The flow of an activator's replies to this packet's client; none when another connection has the port by now.
#[inline(always)]
fn own_reply(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> Option<*mut Flow> {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (address, port, nat) = unsafe { ((*flow).address, (*flow).port, (*flow).other_port) };
    scratch.back = scratch.key.reply_from(address, port);
    scratch.back.target = config.node_address;
    scratch.back.target_port = nat;
    let reply = tables::FLOWS.get_ptr_mut(&scratch.back)?;
    // SAFETY: as above.
    let (client, client_port) = unsafe { (&(*reply).other, (*reply).other_port) };
    (*client == scratch.key.source && client_port == scratch.key.source_port).then_some(reply)
}

/// Writes down a new flow and the flow of its replies. False if no source port was free.
#[inline(always)]
fn record(scratch: &mut Scratch, vip: u32, choice: &Choice, config: &Config) -> bool {
    if let Some(via) = &choice.via {
        return record_activator(scratch, vip, choice, via, config);
    }
    let now = tables::now_ns();
    let packet = &scratch.packet;
    let kind = if config.is_local(&choice.address) {
        FlowKind::ToPod
    } else {
        FlowKind::ToNode
    };
    if matches!(kind, FlowKind::ToPod) {
        scratch.reply = Flow::new(
            FlowKind::FromPod,
            vip,
            packet.target,
            packet.target_port,
            now,
        );
        scratch.back = scratch.key.reply_from(choice.address, choice.port);
        let _ = tables::FLOWS.insert(&scratch.back, &scratch.reply, 0);
        tables::note(Verdict::ServedLocal);
    } else {
        tables::note(Verdict::ServedRemote);
    }
    scratch.flow = Flow::new(kind, vip, choice.address, choice.port, now);
    tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok()
}

/// A flow to an activator takes a source port of the node's own address: the first of a few that is free, or whose
/// connection has ended.
#[inline(always)]
fn record_activator(
    scratch: &mut Scratch,
    vip: u32,
    choice: &Choice,
    via: &[u8; 16],
    config: &Config,
) -> bool {
    let now = tables::now_ns();
    let packet = &scratch.packet;
    scratch.reply = Flow::new(
        FlowKind::FromActivator,
        vip,
        packet.target,
        packet.target_port,
        now,
    )
    .with_other(packet.source, packet.source_port);
    scratch.back = scratch.key.reply_from(choice.address, choice.port);
    scratch.back.target = config.node_address;
    let mut tries = 0;
    while tries < NAT_TRIES {
        scratch.back.target_port = nat_port(tables::random());
        if take_port(scratch, now) {
            scratch.flow = Flow::new(FlowKind::ToActivator, vip, choice.address, choice.port, now)
                .with_other(*via, scratch.back.target_port);
            return tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok();
        }
        tries += 1;
    }
    false
}

/// Writes down the flow of an activator's replies, unless its port belongs to a connection that may go on.
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
#[inline(always)]
fn follow(ctx: &TcContext, scratch: &mut Scratch, flow: *mut Flow, config: &Config) -> i32 {
    refresh(flow);
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, address, port) = unsafe { ((*flow).kind, (*flow).address, (*flow).port) };
    if kind == FlowKind::ToActivator as u32
        && let Some(reply) = own_reply(scratch, flow, config)
    {
        went_on(reply, scratch);
    }
    let packet = &scratch.packet;
    if kind == FlowKind::ToPod as u32 {
        if packet.opens() {
            count::flow_opened(flow);
        } else if packet.closes() {
            count::flow_closed(flow);
        }
        return replace(ctx, packet, End::Target, &address, port).map_or_else(refused, |()| PASS);
    }
    if kind == FlowKind::ToNode as u32 {
        return send_on(ctx, packet, config.uplink, Some(&address));
    }
    // SAFETY: as above.
    let (via, nat) = unsafe { ((*flow).other, (*flow).other_port) };
    if replace(ctx, packet, End::Target, &address, port).is_none() {
        return refused();
    }
    if replace(ctx, packet, End::Source, &config.node_address, nat).is_none() {
        return refused();
    }
    send_on(ctx, packet, config.uplink, Some(&via))
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

/// An activator's reply to a client: both ends become what the client knows.
#[inline(always)]
fn from_activator(ctx: &TcContext, scratch: &Scratch, config: &Config) -> Option<i32> {
    let packet = &scratch.packet;
    let flow = tables::FLOWS.get_ptr_mut(&scratch.key)?;
    refresh(flow);
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, vip, vip_port) = unsafe { ((*flow).kind, (*flow).address, (*flow).port) };
    if kind != FlowKind::FromActivator as u32 {
        return None;
    }
    if packet.closes() {
        // SAFETY: an aligned word of a map value.
        unsafe { (&raw mut (*flow).stage).write_volatile(Stage::Ended as u32) };
    }
    // SAFETY: as above.
    let (client, client_port) = unsafe { ((*flow).other, (*flow).other_port) };
    if replace(ctx, packet, End::Source, &vip, vip_port).is_none() {
        return Some(refused());
    }
    if replace(ctx, packet, End::Target, &client, client_port).is_none() {
        return Some(refused());
    }
    Some(send_on(ctx, packet, config.uplink, None))
}

/// Notes that the flow is in use.
#[inline(always)]
pub(super) fn refresh(flow: *mut Flow) {
    let now = tables::now_ns();
    // SAFETY: an aligned word of a map value; a lost update costs a step of freshness.
    unsafe {
        let seen = &raw mut (*flow).seen_ns;
        if now.wrapping_sub(seen.read_volatile()) > SEEN_STEP_NS {
            seen.write_volatile(now);
        }
    }
}
