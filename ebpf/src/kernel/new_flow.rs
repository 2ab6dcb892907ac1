//! New flows: the two connection tracking entries of a connection, one for each direction.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::{Choice, NO_BACKEND, is_by_host, to_activator};
use dormouse_ebpf::flow::{
    BY_HOST, FORWARDED, Flow, LOADED, MASQUERADED, OPENING, SERVICE, TO_ACTIVATOR,
};
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::verdict::Verdict;

use super::apply_flow::apply;
use super::env::{Env, Hook};
use super::established::{Validity, opposite, validate};
use super::scratch::Scratch;
use super::tables::{self, Kernel};
use super::transmit::dropped;
use super::{clock, count, flows, nat_port, verdicts};

/// Creates the flow to the choice in `scratch`, and applies it to the packet. `known` is the flow that the packet had before.
#[inline(always)]
pub(crate) fn create(
    ctx: &TcContext,
    scratch: &mut Scratch,
    known: Option<*mut Flow>,
    env: Env<'_>,
) -> i32 {
    let config = env.config;
    if !scratch.choice.service {
        app(scratch, config);
    } else if scratch.choice.group != 0 {
        tables::store_affinity(&scratch.packet.source, &scratch.choice);
    }
    if let Some(flow) = known {
        if matches_choice(flow, &scratch.choice)
            && has_reply_flow(scratch, flow)
            && matches!(validate(scratch, flow, config), Validity::Valid)
        {
            return apply(ctx, scratch, flow, env);
        }
        count::flow_closed(flow);
    }
    if !record(scratch, env) {
        let verdict = if scratch.flow.is(MASQUERADED) {
            Verdict::DroppedNoPort
        } else {
            Verdict::TableFull
        };
        return dropped(verdict, scratch.choice.slot);
    }
    match flows::find(&scratch.key) {
        Some(flow) => {
            // Counted from any first packet but one that closes a connection.
            if scratch.flow.loads() && !scratch.packet.closes() {
                count::flow_opened(flow, LOADED);
            }
            apply(ctx, scratch, flow, env)
        }
        None => {
            if !scratch.flow.is(FORWARDED) {
                flows::remove(&scratch.back);
            }
            dropped(Verdict::TableFull, scratch.choice.slot)
        }
    }
}

/// If the chosen backend of an app is a pod of this node that is gone, selects the activator instead, which knows the other
/// pods.
#[inline(always)]
fn app(scratch: &mut Scratch, config: &Config) {
    let asked_port = scratch.packet.target_port;
    let choice = &mut scratch.choice;
    if choice.backend != NO_BACKEND
        && config.is_local(&choice.address)
        && tables::PODS.get_ptr(&choice.address).is_none()
    {
        verdicts::note(Verdict::NoBackend);
        to_activator(config, choice.slot, asked_port, choice);
    }
}

/// Whether the flow goes to the chosen backend: a repeated SYN keeps its flow and is not counted again.
#[inline(always)]
fn matches_choice(flow: *const Flow, choice: &Choice) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; these fields never change.
    unsafe {
        (*flow).target == choice.address
            && (*flow).generation == choice.generation
            && ((*flow).target_port == choice.port || (*flow).is(FORWARDED))
    }
}

/// Whether the reply flow still exists: a full table may have evicted it alone, and replies would not be translated.
#[inline(always)]
fn has_reply_flow(scratch: &mut Scratch, flow: *const Flow) -> bool {
    // SAFETY: a map value, which lives as long as the program runs; this field never changes.
    let forwarded = unsafe { (*flow).is(FORWARDED) };
    forwarded || opposite(scratch, flow).is_some()
}

/// Inserts a new flow and its reply flow: both, or none. False if no NAT port or no room was free.
#[inline(never)]
fn record(scratch: &mut Scratch, env: Env<'_>) -> bool {
    let Env { config, hook } = env;
    let (packet, choice) = (&scratch.packet, &scratch.choice);
    let activated = choice.backend == NO_BACKEND;
    let mut kind = if choice.service { SERVICE } else { 0 };
    if activated {
        kind |= TO_ACTIVATOR;
    }
    if choice.masquerade || activated && matches!(hook, Hook::Uplink) {
        kind |= MASQUERADED;
    }
    if is_by_host(&Kernel, config, packet.protocol, choice) {
        kind |= BY_HOST;
    }
    // A pod of another node: that node translates the VIP itself, so the packet is forwarded unchanged.
    if kind == 0 && matches!(hook, Hook::Uplink) && !config.is_local(&choice.address) {
        kind = FORWARDED;
    }
    let now = clock::now_ns();
    scratch.flow = Flow {
        source: packet.source,
        target: choice.address,
        source_port: packet.source_port,
        target_port: choice.port,
        kind: kind | OPENING,
        slot: choice.slot,
        backend: choice.backend,
        generation: choice.generation,
        stage: Stage::NEW.0,
        open: 0,
        seen_ns: now,
    };
    note_begin(scratch);
    if kind & FORWARDED != 0 {
        return flows::insert(&scratch.key, &scratch.flow, BPF_ANY);
    }
    scratch.fill_reply();
    let replies = if kind & MASQUERADED != 0 {
        nat_port::take(scratch, config, now)
    } else {
        scratch.back = scratch.key.reply(&scratch.flow);
        flows::insert(&scratch.back, &scratch.reply, BPF_ANY)
    };
    replies && complete(scratch)
}

/// Inserts a new flow, whose reply flow is in the table. To make room, a full table evicts entries by the hundred, of those
/// that no packet has used since they were inserted the oldest first: the reply flow may be among them. Then it is
/// inserted once more, into the room that was made.
#[inline(always)]
pub(crate) fn complete(scratch: &mut Scratch) -> bool {
    if !flows::insert(&scratch.key, &scratch.flow, BPF_ANY) {
        flows::remove(&scratch.back);
        return false;
    }
    let replies = flows::find(&scratch.back).is_some()
        || flows::insert(&scratch.back, &scratch.reply, BPF_NOEXIST);
    if !replies {
        flows::remove(&scratch.key);
    }
    replies
}

#[inline(always)]
fn note_begin(scratch: &Scratch) {
    let kind = scratch.flow.kind;
    if kind & TO_ACTIVATOR == 0 {
        verdicts::note(if kind & SERVICE != 0 {
            Verdict::ServiceServed
        } else if kind & FORWARDED != 0 {
            Verdict::ServedRemote
        } else {
            Verdict::ServedLocal
        });
    }
}
