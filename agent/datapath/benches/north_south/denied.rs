//! Packets of denied sources.

use std::net::Ipv6Addr;

use dormouse_agent_datapath::{DENIED_MAX, Denied, Verdict, WITHOUT_END};
use dormouse_agent_services::Prefix;
use dormouse_rows::{Bound, Row};

use crate::place::{NODE, UPLINK};
use crate::{Node, OURS, in_turn, receiver};

/// Its 32 bits before the interface identifier are those that the sender changes.
const DENIED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const SENDER: &str = "measure_send";
const DROP: &str = "measure_drop";
const LOOKUP: &str = "measure_lookup";
/// Most time of a packet, by that of the bare lookup: 0.8 times as many packets.
const OF_LOOKUP: f64 = 1.25;
/// The part of packets that are dropped, at least.
const AS_MEANT: f64 = 0.99;

pub(crate) fn measure(node: &Node) {
    node.datapath.deny.replace(list()).unwrap();
    let [drop, lookup, ours] = in_turn([DROP, LOOKUP, OURS], |program| packet_ns(node, program));
    node.datapath.deny.replace([]).unwrap();
    let compared =
        |name: &str, peer: &Vec<f64>| Row::compared(name, "ns", [&ours[..], peer], |ns| *ns);
    let name = "drop a denied packet, 1M prefixes; against a bare lookup in them";
    let row = compared(name, &lookup).must(Bound::RatioAtMost(OF_LOOKUP));
    row.print().unwrap();
    let row = compared("drop a denied packet; against an empty XDP_DROP", &drop);
    row.print().unwrap();
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
fn packet_ns(node: &Node, program: &'static str) -> f64 {
    let denied = || node.counted(Verdict::DroppedDenied);
    let before = denied();
    let seen = node.receive(program, SENDER, &frame());
    if program == OURS {
        // The program is measured only if it does what it is measured for; a few packets are the kernel's own, of neighbour discovery.
        seen.check(denied() - before, AS_MEANT);
    }
    seen.packet_ns()
}

/// A TCP segment to the node.
fn frame() -> Vec<u8> {
    let mut frame = receiver::mac(UPLINK).to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend(DENIED.octets());
    frame.extend(NODE.octets());
    frame.extend([
        0x9c, 0x40, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
    ]);
    frame
}
