//! What a decision costs: never attached, run by `cargo xtask bench dataplane` over the maps as they are.

use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use dormouse_ebpf::decide::{Answer, decide};
use dormouse_ebpf::maps::join;
use dormouse_ebpf::packet::TCP;
use dormouse_ebpf::pick::{below, mix};

use crate::kernel::tables;
use crate::kernel::tables::{Kernel, Scratch};

/// So many services are asked for, at random: the first addresses of the first service range.
const SERVICES: u32 = 100_000;

/// All that the other program does, but for the decision.
#[classifier]
fn measure_nothing(_: TcContext) -> i32 {
    tables::scratch(tables::ARRIVING).map_or(-1, |scratch| ask(scratch).map_or(-1, |()| 0))
}

/// One decision for a random service. 0: a backend was found.
#[classifier]
fn measure_decide(_: TcContext) -> i32 {
    let Some(scratch) = tables::scratch(tables::ARRIVING) else {
        return -1;
    };
    if ask(scratch).is_none() {
        return -1;
    }
    match decide(&Kernel, &scratch.asked, &mut scratch.choice) {
        Answer::Go(_) => 0,
        _ => 1,
    }
}

#[inline(always)]
fn ask(scratch: &mut Scratch) -> Option<()> {
    let config = tables::config()?;
    let range = &config.services[0];
    let random = tables::random();
    scratch.asked.source = config.pods[1].prefix;
    scratch.asked.target = join(&range.prefix, (below(random, SERVICES) + 1).to_be_bytes());
    scratch.asked.port = 80;
    scratch.asked.protocol = TCP;
    scratch.asked.by_node = false;
    scratch.asked.alike = false;
    scratch.asked.hash = mix(u64::from(random));
    Some(())
}
