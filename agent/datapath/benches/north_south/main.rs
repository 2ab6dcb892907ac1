//! The load of `cargo xtask bench north-south`: packets that a node drops in the uplink's driver, and those that it sends on to another node. Run as root.
//!
//! A veth stands for the network card. Its driver receives in a thread of its own on one CPU, while another CPU sends: a figure is the CPU
//! time of that thread by packet received, so that neither the sender nor other load counts.

#![expect(clippy::unwrap_used, reason = "a measurement ends at its first fault")]

#[path = "../dataplane/place.rs"]
mod place;

mod denied;
mod forwarded;
mod receiver;
mod service;

use std::process::Command;

use dormouse_agent_datapath::{Datapath, Verdict, XdpMode};
use dormouse_rows::host::Before;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;

use place::{Place, UPLINK};
use receiver::{Received, Receiver};

/// The other end of the uplink.
const PEER: &str = "peer0";
/// The CPU that sends.
const SENDS: usize = 0;
/// Packets of one measurement.
const PACKETS: u32 = 3_000_000;
/// The least that arrive of them: the sender does not wait for a receiver that is behind.
const ARRIVE_MIN: u64 = 50_000;
/// Rounds of what is compared, in turn.
const ROUNDS: usize = 5;
/// The program that is measured.
const OURS: &str = "xdp_uplink";

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
    let node = Node::open();
    denied::measure(&node);
    forwarded::measure(&node);
    before.report().unwrap();
}

/// The node, and the thread in which its uplink's driver receives.
struct Node {
    datapath: Datapath,
    receiver: Receiver,
    place: Place,
}

impl Node {
    fn open() -> Self {
        let place = Place::make(XdpMode::Native);
        let datapath = Datapath::open(place.0.clone()).unwrap();
        let receiver = Receiver::open(UPLINK);
        receiver::before_others(nix::unistd::gettid().as_raw());
        Self {
            datapath,
            receiver,
            place,
        }
    }

    /// What the driver has received of a sender's packets while one of the programs was in force there.
    fn receive(&self, program: &'static str, sender: &'static str, frame: &[u8]) -> Received {
        let programs = &self.datapath.programs;
        programs.replace_xdp(&self.place.0, program).unwrap();
        self.send(&self.receiver, PEER, (sender, frame))
    }

    /// What a receiver has received of a sender's packets, which leave by the other end of its link.
    fn send(
        &self,
        receiver: &Receiver,
        by: &str,
        (sender, frame): (&'static str, &[u8]),
    ) -> Received {
        let by = nix::net::if_::if_nametoindex(by).unwrap();
        let before = receiver.read();
        self.datapath
            .programs
            .send(sender, frame, by, PACKETS)
            .unwrap();
        let seen = receiver.since(&before);
        assert!(seen.packets > ARRIVE_MIN, "{sender}: {seen:?}");
        seen
    }

    /// How often the programs have given a verdict.
    fn counted(&self, verdict: Verdict) -> u64 {
        let mut stats = self.datapath.stats().into_iter();
        stats
            .find(|(of, _)| *of == verdict)
            .map_or(0, |(_, count)| count)
    }
}

impl Received {
    /// CPU time of a packet, in nanoseconds.
    fn packet_ns(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.packets as f64
    }

    /// Ends the measurement unless this part of the packets were handled as they are meant to be: it would be one of something else.
    fn check(&self, handled: u64, part: f64) {
        assert!(
            handled as f64 > part * self.packets as f64,
            "{handled} of {self:?}"
        );
    }
}

/// Measures each side in turn, [`ROUNDS`] times.
fn in_turn<S: Copy, const N: usize>(
    sides: [S; N],
    mut measure: impl FnMut(S) -> f64,
) -> [Vec<f64>; N] {
    let mut samples = sides.map(|side| (side, Vec::new()));
    for _ in 0..ROUNDS {
        for (side, samples) in &mut samples {
            samples.push(measure(*side));
        }
    }
    samples.map(|(_, samples)| samples)
}

fn ip(arguments: &str) {
    let words = arguments.split(' ');
    assert!(Command::new("ip").args(words).status().unwrap().success());
}
