//! The load of `cargo xtask bench north-south`: packets that a node drops in the uplink's driver. Run as root.
//!
//! A veth stands for the network card. Its driver receives in a thread of its own on one CPU, while another CPU sends: a figure is the CPU
//! time of that thread by packet received, so that neither the sender nor other load counts.

#![expect(clippy::unwrap_used, reason = "a measurement ends at its first fault")]

#[path = "../dataplane/place.rs"]
mod place;
mod receiver;

use std::net::Ipv6Addr;
use std::process::Command;

use dormouse_agent_datapath::{
    Config, DENIED_MAX, Datapath, Denied, Verdict, WITHOUT_END, XdpMode,
};
use dormouse_agent_services::Prefix;
use dormouse_rows::host::Before;
use dormouse_rows::{Bound, Row};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;

use place::{NODE, Place, UPLINK};
use receiver::Receiver;

/// The other end of the uplink.
const PEER: &str = "peer0";
/// The CPU that sends.
const SENDS: usize = 0;
/// Its 32 bits before the interface identifier are those that the sender changes.
const DENIED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Packets of one measurement.
const PACKETS: u32 = 3_000_000;
/// Rounds of the programs in turn.
const ROUNDS: usize = 7;
const DROP: &str = "measure_drop";
const LOOKUP: &str = "measure_lookup";
const OURS: &str = "xdp_uplink";
/// Most time of a packet, by that of the bare lookup: 0.8 times as many packets.
const OF_LOOKUP: f64 = 1.25;

fn main() {
    // A namespace of mounts, too: /sys shows the links of the network namespace in which it is mounted.
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    let mut cpus = CpuSet::new();
    cpus.set(SENDS).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
    ip("link set lo up");
    ip(&format!("link add {UPLINK} type veth peer name {PEER}"));
    ip(&format!("link set {UPLINK} up"));
    ip(&format!("link set {PEER} up"));
    let before = Before::read().unwrap();
    let place = Place::make(XdpMode::Native);
    let datapath = Datapath::open(place.0.clone()).unwrap();
    datapath.deny.replace(list()).unwrap();
    let receiver = Receiver::open();
    receiver::before_others(nix::unistd::gettid().as_raw());
    let mut samples = [DROP, LOOKUP, OURS].map(|program| (program, Vec::new()));
    for _ in 0..ROUNDS {
        for (program, samples) in &mut samples {
            samples.push(measure(&datapath, &place.0, &receiver, program));
        }
    }
    let [(_, drop), (_, lookup), (_, ours)] = &samples;
    let compared = |name: &str, peer| Row::compared(name, "ns", [ours, peer], |ns| *ns);
    let rows = [
        compared(
            "drop a denied packet, 1M prefixes; against a bare lookup in them",
            lookup,
        )
        .must(Bound::RatioAtMost(OF_LOOKUP)),
        compared("drop a denied packet; against an empty XDP_DROP", drop),
    ];
    for row in rows {
        row.print().unwrap();
    }
    before.report().unwrap();
}

fn ip(arguments: &str) {
    let words = arguments.split(' ');
    assert!(Command::new("ip").args(words).status().unwrap().success());
}

/// A million networks.
fn list() -> impl Iterator<Item = Denied> {
    let base = DENIED.to_bits() >> 64 << 64;
    (0..DENIED_MAX).map(move |network| {
        let first = Ipv6Addr::from_bits(base | u128::from(network) << 64);
        Denied {
            prefix: Prefix::parse(&format!("{first}/64")).unwrap(),
            until_ns: WITHOUT_END,
        }
    })
}

/// The CPU time of the receiver for a packet that a program drops, in nanoseconds.
fn measure(
    datapath: &Datapath,
    config: &Config,
    receiver: &Receiver,
    program: &'static str,
) -> f64 {
    datapath.programs.replace_xdp(config, program).unwrap();
    let peer = nix::net::if_::if_nametoindex(PEER).unwrap();
    let denied = || {
        let stats = datapath.stats().into_iter();
        let mut stats = stats.filter(|(verdict, _)| *verdict == Verdict::DroppedDenied);
        stats.next().map_or(0, |(_, count)| count)
    };
    let before = (receiver.read(), denied());
    datapath.programs.send(&frame(), peer, PACKETS).unwrap();
    let seen = receiver.since(&before.0);
    if program == OURS {
        // The program is measured only if it does what it is measured for.
        assert_eq!(denied() - before.1, seen.packets);
    }
    assert!(seen.packets > u64::from(PACKETS) / 10, "{seen:?}");
    seen.cpu.as_secs_f64() * 1e9 / seen.packets as f64
}

/// A TCP segment to the node.
fn frame() -> Vec<u8> {
    let mut frame = receiver::mac().to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend(DENIED.octets());
    frame.extend(NODE.octets());
    frame.extend([
        0x9c, 0x40, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
    ]);
    frame
}
