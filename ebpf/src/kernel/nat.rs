//! What becomes of a packet: as its flow was decided, or decided now.

use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Answer, decide, may_be_ours};
use dormouse_ebpf::flow::{Flow, FlowKey, QUIET_NS};
use dormouse_ebpf::maps::NO_SLOT;
use dormouse_ebpf::packet::{FIRST, Read, read};
use dormouse_ebpf::pick::flow_hash;
use dormouse_ebpf::trace::Telling;
use dormouse_ebpf::verdict::Verdict;

use super::begin::go;
use super::follow::follow;
use super::send::{NEXT, dropped};
use super::shortcut::shorten;
use super::skb::frame;
use super::standing::{Standing, is_reply, standing};
use super::tables::{Kernel, Scratch};
use super::{count, errors, fragments, refuse, tables, trace};

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

/// Reads a packet into the room of its program.
#[inline(always)]
pub(crate) fn look(ctx: &TcContext, scratch: &mut Scratch) -> Read {
    // What is no IP packet leaves the rest as it was.
    scratch.packet.source = [0; 16];
    scratch.packet.target = [0; 16];
    scratch.packet.v4 = 0;
    scratch.packet.protocol = 0;
    read(&frame(ctx), &mut scratch.packet)
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
    let known = tables::flow(&scratch.key);
    if let Some(flow) = known
        && (!scratch.packet.opens() || is_reply(flow))
    {
        match standing(scratch, flow, config) {
            Standing::Follow => return follow(ctx, scratch, flow, config, way),
            Standing::Reset => {
                tables::note(Verdict::Reset);
                return refuse::reset(ctx, scratch);
            }
            Standing::Refuse => {
                tables::note(Verdict::Rejected);
                return refuse::unreachable(ctx, scratch);
            }
            Standing::Anew => {}
        }
    }
    let target = &scratch.packet.target;
    let answer = if may_be_ours(&Kernel, config, target) || config.is_service_address(target) {
        ask(scratch, way)
    } else {
        Answer::Pass
    };
    let verdict = match answer {
        Answer::Pass => {
            if let Some(flow) = known {
                count::flow_closed(flow);
                tables::end_flow(&scratch.key);
            }
            if scratch.packet.begins() {
                take_ends(scratch);
            }
            return shorten(ctx, scratch, &scratch.packet, config, way);
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
    let Some(reply) = tables::flow(&scratch.back) else {
        return;
    };
    if !is_reply(reply) || !scratch.packet.opens() && is_in_use(scratch, reply) {
        return;
    }
    tables::end_flow(&scratch.back);
}

/// Whether the client of these replies has sent something lately.
#[inline(always)]
fn is_in_use(scratch: &Scratch, reply: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let client = scratch.back.answered(unsafe { &*reply });
    tables::flow(&client).is_some_and(|flow| {
        // SAFETY: an aligned word of a map value.
        let seen_ns = unsafe { (&raw const (*flow).seen_ns).read_volatile() };
        tables::now_ns().wrapping_sub(seen_ns) < QUIET_NS
    })
}

/// Decides a new connection.
#[inline(never)]
fn ask(scratch: &mut Scratch, way: Way) -> Answer {
    let packet = &scratch.packet;
    scratch.asked.source = packet.source;
    scratch.asked.target = packet.target;
    scratch.asked.port = packet.target_port;
    scratch.asked.protocol = packet.protocol;
    scratch.asked.by_node = false;
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
