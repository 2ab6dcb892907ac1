//! The cost of a decision: programs that are never attached, run by `cargo xtask bench dataplane` over the node's maps.

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::decide::{Decision, decide};
use dormouse_ebpf::maps::join;
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::pick::{below, mix};

use crate::kernel::scratch::{self, Scratch};
use crate::kernel::tables::{self, Kernel};

/// The number of Services that decisions are made for, at random: the first addresses of the first service range.
const SERVICES: u32 = 100_000;

/// The same as [`measure_decide`] without the decision.
#[classifier]
fn measure_nothing(_: TcContext) -> i32 {
    Scratch::of(scratch::ARRIVING).map_or(-1, |scratch| prepare(scratch).map_or(-1, |()| 0))
}

/// One decision for a random Service. 0: a backend was selected.
#[classifier]
fn measure_decide(_: TcContext) -> i32 {
    let Some(scratch) = Scratch::of(scratch::ARRIVING) else {
        return -1;
    };
    if prepare(scratch).is_none() {
        return -1;
    }
    match decide(&Kernel, &scratch.request, &mut scratch.choice) {
        Decision::Forward(_) => 0,
        _ => 1,
    }
}

#[inline(always)]
fn prepare(scratch: &mut Scratch) -> Option<()> {
    let config = tables::config()?;
    let range = &config.services[0];
    let random = tables::random();
    scratch.request.source = config.pods[1].prefix;
    scratch.request.target = join(&range.prefix, (below(random, SERVICES) + 1).to_be_bytes());
    scratch.request.port = 80;
    scratch.request.protocol = TCP;
    scratch.request.from_node = false;
    scratch.request.consistent = false;
    scratch.request.hash = mix(u64::from(random));
    Some(())
}
