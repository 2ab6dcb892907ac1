//! Whether a flow may go on as it was decided.

use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{NO_BACKEND, Tables};
use dormouse_ebpf::flow::{ACTIVATED, ENDED, Flow, HIDDEN, ONWARD, REPLY, SEEN_STEP_NS, SERVICE};
use dormouse_ebpf::packet::{TCP, UDP};
use dormouse_ebpf::verdict::Verdict;

use super::tables;
use super::tables::{Kernel, Scratch};

/// What becomes of a known flow's packet.
pub(crate) enum Standing {
    Follow,
    Anew,
    Reset,
    Refuse,
}

#[inline(always)]
pub(crate) fn is_reply(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).is(REPLY) }
}

/// Whether the backend that a flow or a socket was led to is the one that has its id now.
#[inline(always)]
pub(crate) fn serves(backend: u32, generation: u32) -> bool {
    backend == NO_BACKEND
        || Kernel
            .backend(backend)
            .is_some_and(|row| u32::from(row.generation) == generation)
}

/// Whether the flow may go on: its backend serves, and the node's port that it uses is still its own.
#[inline(always)]
pub(crate) fn standing(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> Standing {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, id, generation) = unsafe { ((*flow).kind, (*flow).backend, (*flow).generation) };
    if kind & REPLY != 0 {
        return Standing::Follow;
    }
    if kind & ENDED != 0 {
        return ended(scratch, flow);
    }
    let serves = serves(id, generation);
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
pub(crate) fn own_reply(scratch: &mut Scratch, flow: *const Flow) -> Option<*mut Flow> {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    scratch.back = scratch.key.answered(unsafe { &*flow });
    let reply = tables::flow(&scratch.back)?;
    // SAFETY: as above.
    let (client, port) = unsafe { (&(*reply).target, (*reply).target_port) };
    (*client == scratch.key.source && port == scratch.key.source_port).then_some(reply)
}
