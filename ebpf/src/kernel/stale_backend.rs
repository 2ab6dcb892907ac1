//! Connected sockets whose backend is gone: the next packet of such a socket inserts a flow that redirects or rejects it.
//!
//! The socket keeps the backend's address as its peer, so the packets are translated: to another backend (UDP), or they are
//! rejected. Sockets are not searched for, because each is found by its own next packet.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::programs::SkBuffContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Decision, NO_BACKEND, decide, is_by_host};
use dormouse_ebpf::flow::{
    BY_HOST, Flow, FlowKey, LOADED, OPENING, REPLY, REVOKED, SERVICE, TO_ACTIVATOR,
};
use dormouse_ebpf::maps::{SOCKET_SERVICE, Socket};
use dormouse_ebpf::packet::{Read, UDP, read};
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::verdict::Verdict;

use super::established::is_current;
use super::new_flow::complete;
use super::scratch::{self, Scratch};
use super::tables::{self, Kernel};
use super::{atomic, clock, flows, load, skb, socket, socket_storage, verdicts};

/// Checks whether the packet's socket was translated to a backend that is gone. False if the packet is to be dropped here,
/// because no later program could reject it.
#[inline(always)]
pub(crate) fn check(ctx: &SkBuffContext) -> bool {
    let Some(socket) = socket_storage::sender(ctx) else {
        return true;
    };
    // SAFETY: the socket's storage, which outlives its packet; changes only while it connects.
    let socket = unsafe { &*socket };
    if is_current(socket.backend, socket.generation) {
        return true;
    }
    let (Some(scratch), Some(config)) = (Scratch::of(scratch::SENDING), tables::config()) else {
        return true;
    };
    // An interrupt may send while a process does, on the same CPU: its packet passes, and the next one is checked again.
    // SAFETY: an aligned word of a map value.
    if unsafe { atomic::swap(&raw mut scratch.busy, 1) } == 0 {
        let goes = redirect(ctx, scratch, config, socket);
        // SAFETY: as above.
        unsafe { atomic::swap(&raw mut scratch.busy, 0) };
        return goes;
    }
    true
}

#[inline(always)]
fn redirect(ctx: &SkBuffContext, scratch: &mut Scratch, config: &Config, socket: &Socket) -> bool {
    if !matches!(
        read(&skb::headless(ctx), &mut scratch.packet),
        Read::Transport
    ) {
        return true;
    }
    let udp = scratch.packet.protocol == UDP;
    // An app's TCP connections end with their pod, which drains them.
    if !udp && socket.kind & SOCKET_SERVICE == 0 {
        return true;
    }
    // sendmsg(2) may have another target than the socket's peer: that is translated for each datagram.
    if scratch.packet.target_port != socket.port || scratch.packet.target != socket.address {
        return true;
    }
    scratch.key = FlowKey::of(&scratch.packet);
    if let Some(flow) = flows::find(&scratch.key) {
        // SAFETY: a map value, which lives as long as the program runs; these fields never change.
        let (kind, id, generation) = unsafe { ((*flow).kind, (*flow).backend, (*flow).generation) };
        if kind & REVOKED == 0 && is_current(id, generation) {
            return true;
        }
    }
    verdicts::note(Verdict::SocketStale);
    if udp && reselect(scratch, config, socket, socket::cookie(ctx)) {
        return true;
    }
    // The node's own packets pass no program that could reject them. Its TCP connections go on, as with kube-proxy.
    let source = &scratch.packet.source;
    if source == config.node_address_for(source) {
        return !udp;
    }
    scratch.flow = Flow {
        source: scratch.packet.source,
        target: scratch.packet.target,
        source_port: scratch.packet.source_port,
        target_port: scratch.packet.target_port,
        kind: REVOKED,
        slot: socket.slot,
        backend: NO_BACKEND,
        seen_ns: clock::now_ns(),
        ..Flow::default()
    };
    let _ = flows::insert(&scratch.key, &scratch.flow, BPF_ANY);
    true
}

/// Inserts a flow to another backend of the VIP. False if there is none.
#[inline(never)]
fn reselect(scratch: &mut Scratch, config: &Config, socket: &Socket, cookie: u64) -> bool {
    let packet = &scratch.packet;
    scratch.request.source = packet.source;
    scratch.request.target = socket.vip;
    scratch.request.port = socket.vip_port;
    scratch.request.protocol = packet.protocol;
    scratch.request.from_node = packet.source == *config.node_address_for(&packet.source);
    scratch.request.consistent = false;
    scratch.request.hash = mix(cookie);
    if !matches!(
        decide(&Kernel, &scratch.request, &mut scratch.choice),
        Decision::Forward(_)
    ) {
        return false;
    }
    let (packet, choice) = (&scratch.packet, &scratch.choice);
    let by_host = is_by_host(&Kernel, config, packet.protocol, choice);
    // What a pod of another CNI plugin replies to the node comes by no hook, with a source that is not the socket's peer.
    if by_host && scratch.request.from_node {
        return false;
    }
    scratch.flow = Flow {
        source: packet.source,
        target: choice.address,
        source_port: packet.source_port,
        target_port: choice.port,
        kind: OPENING
            | if by_host { BY_HOST } else { 0 }
            | if choice.service {
                SERVICE
            } else if choice.backend == NO_BACKEND {
                TO_ACTIVATOR
            } else {
                0
            },
        slot: choice.slot,
        backend: choice.backend,
        generation: choice.generation,
        stage: Stage::NEW.0,
        seen_ns: clock::now_ns(),
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
    scratch.back = scratch.key.reply(&scratch.flow);
    let begun = flows::insert(&scratch.back, &scratch.reply, BPF_ANY) && complete(scratch);
    if begun && scratch.flow.open & LOADED != 0 {
        load::flow_begun(scratch.flow.backend);
    }
    begun
}
