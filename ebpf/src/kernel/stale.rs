//! A socket that was connected to a backend which is gone: its next packet makes the flow that mends it.
//!
//! The socket goes on naming the backend that it was connected to, so the packets are changed on their way: to another
//! backend where that makes sense (UDP), to a refusal where it does not. Nobody looks for such sockets.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::programs::SkBuffContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Answer, NO_BACKEND, decide};
use dormouse_ebpf::flow::{ACTIVATED, ENDED, Flow, FlowKey, LOADED, REPLY, SERVICE};
use dormouse_ebpf::maps::{SOCKET_SERVICE, Socket};
use dormouse_ebpf::packet::{Read, UDP, read};
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::verdict::Verdict;

use super::standing::serves;
use super::tables::{Kernel, Scratch};
use super::{atomic, behind, load, skb, socket, tables};

/// Looks whether the packet's socket was led to a backend that is gone. False if the packet can go nowhere, and no program
/// on its way could say so.
#[inline(always)]
pub(crate) fn look(ctx: &SkBuffContext) -> bool {
    let Some(socket) = behind::sender(ctx) else {
        return true;
    };
    // SAFETY: lies behind the socket, which outlives its packet; changes only while it connects.
    let socket = unsafe { &*socket };
    if serves(socket.backend, socket.generation) {
        return true;
    }
    let (Some(scratch), Some(config)) = (tables::scratch(tables::SENDING), tables::config()) else {
        return true;
    };
    // An interrupt may send while a process does, on the same CPU: its packet goes on, and the next one tries again.
    // SAFETY: an aligned word of a map value.
    if unsafe { atomic::swap(&raw mut scratch.busy, 1) } == 0 {
        let goes = mend(ctx, scratch, config, socket);
        // SAFETY: as above.
        unsafe { atomic::swap(&raw mut scratch.busy, 0) };
        return goes;
    }
    true
}

#[inline(always)]
fn mend(ctx: &SkBuffContext, scratch: &mut Scratch, config: &Config, socket: &Socket) -> bool {
    if !matches!(
        read(&skb::headless(ctx), &mut scratch.packet),
        Read::Transport
    ) {
        return true;
    }
    let udp = scratch.packet.protocol == UDP;
    // An app's connections end with their pod, which waits for them.
    if !udp && socket.kind & SOCKET_SERVICE == 0 {
        return true;
    }
    // sendmsg(2) may name others than the socket is connected to: it finds who serves each time.
    if scratch.packet.target_port != socket.port || scratch.packet.target != socket.address {
        return true;
    }
    scratch.key = FlowKey::of(&scratch.packet);
    if let Some(flow) = tables::flow(&scratch.key) {
        // SAFETY: a map value, which lives as long as the program runs; these fields never change.
        let (kind, id, generation) = unsafe { ((*flow).kind, (*flow).backend, (*flow).generation) };
        if kind & ENDED == 0 && serves(id, generation) {
            return true;
        }
    }
    tables::note(Verdict::SocketStale);
    if udp && again(scratch, config, socket, socket::cookie(ctx)) {
        return true;
    }
    // The node's own packets meet no program that could refuse them. Its connections go on, as kube-proxy has it.
    let source = &scratch.packet.source;
    if source == config.node_address_for(source) {
        return !udp;
    }
    scratch.flow = Flow {
        source: scratch.packet.source,
        target: scratch.packet.target,
        source_port: scratch.packet.source_port,
        target_port: scratch.packet.target_port,
        kind: ENDED,
        slot: socket.slot,
        backend: NO_BACKEND,
        seen_ns: tables::now_ns(),
        ..Flow::default()
    };
    let _ = tables::begin_flow(&scratch.key, &scratch.flow, BPF_ANY);
    true
}

/// Writes down the flow to another backend of the VIP. False if there is none.
#[inline(never)]
fn again(scratch: &mut Scratch, config: &Config, socket: &Socket, cookie: u64) -> bool {
    let packet = &scratch.packet;
    scratch.asked.source = packet.source;
    scratch.asked.target = socket.vip;
    scratch.asked.port = socket.vip_port;
    scratch.asked.protocol = packet.protocol;
    scratch.asked.by_node = packet.source == *config.node_address_for(&packet.source);
    scratch.asked.alike = false;
    scratch.asked.hash = mix(cookie);
    if !matches!(
        decide(&Kernel, &scratch.asked, &mut scratch.choice),
        Answer::Go(_)
    ) {
        return false;
    }
    let (packet, choice) = (&scratch.packet, &scratch.choice);
    scratch.flow = Flow {
        source: packet.source,
        target: choice.address,
        source_port: packet.source_port,
        target_port: choice.port,
        kind: if choice.service {
            SERVICE
        } else if choice.backend == NO_BACKEND {
            ACTIVATED
        } else {
            0
        },
        slot: choice.slot,
        backend: choice.backend,
        generation: choice.generation,
        seen_ns: tables::now_ns(),
        open: if choice.backend == NO_BACKEND {
            0
        } else {
            LOADED
        },
        ..Flow::default()
    };
    scratch.reply = Flow {
        source: packet.target,
        target: packet.source,
        source_port: packet.target_port,
        target_port: packet.source_port,
        kind: scratch.flow.kind | REPLY,
        open: 0,
        ..scratch.flow
    };
    scratch.back = scratch.key.answered(&scratch.flow);
    let begun = tables::begin_flow(&scratch.back, &scratch.reply, BPF_ANY)
        && tables::begin_flow(&scratch.key, &scratch.flow, BPF_ANY);
    if begun && scratch.flow.open & LOADED != 0 {
        load::flow_begun(scratch.flow.backend);
    }
    begun
}
