//! What arrives from outside: to a VIP, or back from an activator. Minimum kernel: 6.6 (TCX links).

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::flow::{Flow, FlowKey, FlowKind, SEEN_STEP_NS, nat_port};
use dormouse_ebpf::maps::Config;
use dormouse_ebpf::packet::{Transport, transport};
use dormouse_ebpf::pick::flow_hash;
use dormouse_ebpf::verdict::Verdict;

use crate::kernel::choose::{self, Choice, Pick};
use crate::kernel::rewrite::{DROP, End, Frame, NEXT, PASS, refused, replace, send_on};
use crate::kernel::tables::Scratch;
use crate::kernel::{count, tables};

/// How often a source port towards an activator is drawn before the packet is dropped.
const NAT_TRIES: u32 = 8;

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
    let packet = &scratch.packet;
    let known = tables::FLOWS.get_ptr_mut(&scratch.key);
    if let Some(flow) = known
        && !packet.opens()
        && is_alive(flow)
    {
        return follow(ctx, packet, flow, config);
    }
    let hash = flow_hash(
        &packet.source,
        packet.source_port,
        vip,
        packet.target_port,
        packet.protocol,
    );
    let Some(choice) = choose::choose(vip, packet.target_port, Pick::Rendezvous(hash), config)
    else {
        return DROP;
    };
    let choice = present(choice, vip, packet.target_port, config);
    if let Some(flow) = known {
        if leads_to(flow, &choice) {
            return follow(ctx, packet, flow, config);
        }
        count::flow_closed(flow);
    }
    if !record(scratch, vip, &choice, config) {
        tables::note(Verdict::DroppedNoPort);
        return DROP;
    }
    match tables::FLOWS.get_ptr_mut(&scratch.key) {
        Some(flow) => follow(ctx, &scratch.packet, flow, config),
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

/// The pod of this flow still exists, as far as this node can know.
#[inline(always)]
fn is_alive(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, address) = unsafe { ((*flow).kind, &(*flow).address) };
    kind != FlowKind::ToPod as u32 || tables::PODS.get_ptr(address).is_some()
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

/// A flow to an activator takes a source port of the node's own address: the first free one of a few.
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
        if tables::FLOWS
            .insert(&scratch.back, &scratch.reply, u64::from(BPF_NOEXIST))
            .is_ok()
        {
            scratch.flow = Flow::new(FlowKind::ToActivator, vip, choice.address, choice.port, now)
                .with_other(*via, scratch.back.target_port);
            return tables::FLOWS.insert(&scratch.key, &scratch.flow, 0).is_ok();
        }
        tries += 1;
    }
    false
}

/// Does with a packet what its flow says.
#[inline(always)]
fn follow(ctx: &TcContext, packet: &Transport, flow: *mut Flow, config: &Config) -> i32 {
    refresh(flow);
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, address, port) = unsafe { ((*flow).kind, (*flow).address, (*flow).port) };
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
