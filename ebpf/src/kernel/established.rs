//! Validity of known flows: whether a packet may still be translated by its flow.

use aya_ebpf::bindings::BPF_NOEXIST;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{NO_BACKEND, Tables};
use dormouse_ebpf::flow::{
    FORWARDED, Flow, MASQUERADED, REPLY, REVOKED, SEEN_STEP_NS, SERVICE, TO_ACTIVATOR,
};
use dormouse_ebpf::packet::{TCP, UDP};
use dormouse_ebpf::verdict::Verdict;

use super::scratch::Scratch;
use super::tables::{self, Kernel};
use super::{clock, flows, found, verdicts};

/// The handling of a packet whose flow is known.
pub(crate) enum Validity {
    /// The flow is applied.
    Valid,
    /// The flow is decided again, as for a new connection.
    Reselect,
    /// The connection is reset.
    Reset,
    /// The packet is rejected with an ICMP error.
    Reject,
}

#[inline(always)]
pub(crate) fn is_reply(flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    unsafe { (*flow).is(REPLY) }
}

/// Whether the backend of a flow or socket still exists: its id has not been given to another one.
#[inline(always)]
pub(crate) fn is_current(backend: u32, generation: u32) -> bool {
    backend == NO_BACKEND
        || Kernel
            .backend(backend)
            .is_some_and(|row| u32::from(row.generation) == generation)
}

/// Checks that the flow's backend exists, and that its NAT port, if it has one, is still its own.
#[inline(always)]
pub(crate) fn validate(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> Validity {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let (kind, id, generation) = unsafe { ((*flow).kind, (*flow).backend, (*flow).generation) };
    if kind & REPLY != 0 {
        return Validity::Valid;
    }
    if kind & REVOKED != 0 {
        return ended(scratch, flow);
    }
    let is_current = is_current(id, generation);
    if !is_current && scratch.packet.protocol == UDP {
        verdicts::note(Verdict::Reselected);
        return Validity::Reselect;
    }
    if !is_current && kind & SERVICE != 0 {
        return Validity::Reset;
    }
    if kind & MASQUERADED != 0 && !has_reply(scratch, flow, config) {
        return Validity::Reselect;
    }
    // SAFETY: as above.
    let target = unsafe { &(*flow).target };
    let here = kind & (SERVICE | TO_ACTIVATOR | FORWARDED) == 0 && config.is_local(target);
    if here && tables::PODS.get_ptr(target).is_none() {
        return Validity::Reselect;
    }
    Validity::Valid
}

/// Whether a masqueraded flow has its reply flow, if need be again.
#[inline(always)]
fn has_reply(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    let ends = unsafe { &*flow };
    if found::recently(ends) {
        return true;
    }
    if opposite(scratch, flow).is_none() && !restore_reply(scratch, flow, config) {
        return false;
    }
    found::note(ends);
    true
}

/// Inserts the reply flow of a masqueraded flow again, which a full table has evicted alone: without it the connection would get
/// another NAT port, which its backend does not know. False if another connection has the port, and during a take-over, which
/// moves flows one by one. `scratch.back` is its key.
#[inline(never)]
fn restore_reply(scratch: &mut Scratch, flow: *const Flow, config: &Config) -> bool {
    if !config.forwarding.get().is_alone() {
        return false;
    }
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    scratch.flow = unsafe { *flow };
    scratch.fill_reply();
    // The room for it may have been this flow's own.
    flows::insert(&scratch.back, &scratch.reply, BPF_NOEXIST) && flows::find(&scratch.key).is_some()
}

/// A revoked flow rejects packets for one [`SEEN_STEP_NS`]; later another socket may use the same addresses and ports.
#[inline(always)]
fn ended(scratch: &Scratch, flow: *const Flow) -> Validity {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    let said_ns = unsafe { (*flow).seen_ns };
    if clock::now_ns().wrapping_sub(said_ns) > SEEN_STEP_NS {
        Validity::Reselect
    } else if scratch.packet.protocol == TCP {
        Validity::Reset
    } else {
        Validity::Reject
    }
}

/// The other direction's entry of a packet's flow; none if another connection has the NAT port by now.
#[inline(always)]
pub(crate) fn opposite(scratch: &mut Scratch, flow: *const Flow) -> Option<*mut Flow> {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    scratch.back = scratch.key.reply(unsafe { &*flow });
    let found = flows::find(&scratch.back)?;
    // SAFETY: as above.
    let (sender, port) = unsafe { (&(*found).target, (*found).target_port) };
    (*sender == scratch.key.source && port == scratch.key.source_port).then_some(found)
}
