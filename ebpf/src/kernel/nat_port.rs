//! NAT ports of masqueraded connections: the least recently used port that is free.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use dormouse_ebpf::config::{Config, Forwarding};
use dormouse_ebpf::flow::{Flow, FlowKey, NAT_PORTS, TAKEN, nat_cursor, nat_port};
use dormouse_ebpf::stage::Stage;
use dormouse_ebpf::verdict::Verdict;

use super::atomic;
use super::scratch::Scratch;
use super::{flows, tables, verdicts};

/// How many ports are tried: near ones first, each of which skips twice as many as the one before, then some all over the cycle, so
/// that a block of ports in long use is passed.
const TRIES: u32 = 16;
const NEAR_TRIES: u32 = 8;
/// Places between the later tries: by the golden section of the cycle they never come close to each other.
const STRIDE: u32 = NAT_PORTS * 382 / 1_000;

/// A port after it was tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// The reply flow with it is inserted.
    Taken,
    /// Its connection has ended, but the backend may hold it in TIME_WAIT.
    GivesWay,
    /// Its connection may go on.
    InUse,
}

/// Gives the new flow a NAT port, and inserts its reply flow. False if no port is free.
#[inline(always)]
pub(crate) fn take(scratch: &mut Scratch, config: &Config, now_ns: u64) -> bool {
    scratch.flow.source = *config.node_address_for(&scratch.packet.source);
    if scratch.flow.source == [0; 16] {
        return false;
    }
    let forwarding = config.forwarding.get();
    scratch.back = scratch.key.reply(&scratch.flow);
    let Some(cursor) = tables::NAT_CURSOR.get_ptr_mut(nat_cursor(&scratch.back)) else {
        return false;
    };
    let first = advance(cursor);
    let mut oldest = 0;
    let mut tries = 0;
    while tries < TRIES {
        let skipped = if tries < NEAR_TRIES {
            (1_u32 << tries) - 1
        } else {
            tries * STRIDE
        };
        let port = nat_port(first.wrapping_add(skipped), forwarding.nat_ports());
        set_port(scratch, port);
        match try_port(scratch, forwarding, now_ns) {
            Tried::Taken => {
                if skipped != 0 {
                    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
                    unsafe { atomic::add(cursor, skipped.into()) };
                }
                return true;
            }
            Tried::GivesWay if oldest == 0 => oldest = port,
            _ => {}
        }
        tries += 1;
    }
    if oldest == 0 {
        return false;
    }
    set_port(scratch, oldest);
    let taken = claim(&scratch.back) && flows::insert(&scratch.back, &scratch.reply, BPF_ANY);
    if taken {
        verdicts::note(Verdict::NatPortReused);
    }
    taken
}

/// The next place of the cycle. It begins at a random one, so that the ports of a restarted node are not the same.
#[inline(always)]
fn advance(cursor: *mut u64) -> u32 {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs.
    let place = unsafe { atomic::fetch_add(cursor, 1) };
    if place != 0 {
        return place as u32;
    }
    let place = tables::random();
    // SAFETY: as above.
    unsafe { atomic::add(cursor, place.into()) };
    place
}

#[inline(always)]
fn set_port(scratch: &mut Scratch, port: u16) {
    scratch.flow.source_port = port;
    scratch.back.target_port = port;
}

/// Inserts the reply flow, unless its NAT port belongs to a connection that may go on, or that the programs of another data
/// path may know.
#[inline(always)]
fn try_port(scratch: &Scratch, forwarding: Forwarding, now_ns: u64) -> Tried {
    let (key, reply) = (&scratch.back, &scratch.reply);
    let Some(before) = flows::find(key) else {
        return if flows::insert(key, reply, BPF_NOEXIST) {
            Tried::Taken
        } else {
            Tried::InUse
        };
    };
    if !forwarding.reuses_nat_ports() {
        return Tried::InUse;
    }
    // SAFETY: a map value, which lives as long as the program runs; what changes in it are single words.
    let (stage, silent_ns) = unsafe { (Stage((*before).stage), (*before).silent_ns(now_ns)) };
    if stage.releases_port(key.protocol(), silent_ns) {
        if is_claimed(before) && flows::insert(key, reply, BPF_ANY) {
            return Tried::Taken;
        }
        Tried::InUse
    } else if stage.gives_way(key.protocol(), silent_ns) {
        Tried::GivesWay
    } else {
        Tried::InUse
    }
}

/// Claims the port of an ended connection, which one processor can.
#[inline(always)]
fn claim(key: &FlowKey) -> bool {
    flows::find(key).is_some_and(is_claimed)
}

#[inline(always)]
fn is_claimed(before: *mut Flow) -> bool {
    // SAFETY: an aligned word of a map value, which lives as long as the program runs; no reply flow is open in a counter.
    unsafe {
        let open = (&raw const (*before).open).read_volatile();
        open & TAKEN == 0 && atomic::replace(&raw mut (*before).open, open, open | TAKEN)
    }
}
