//! Packets to VIPs that are neither TCP, UDP nor SCTP end at the node: its router would send them back again and again.

use dormouse_agent_datapath::{Hook, Verdict};
use dormouse_agent_inspect::frame::Opening;
use dormouse_ebpf::packet::ICMP;
use dormouse_rig::address::{CLIENT, POD};
use dormouse_rig::frame::{HEADERS, ICMPV6, MACS, ipv6, ones_sum, seal, solicitation, sum};
use dormouse_rig::tcx::{DROP, NEXT, REDIRECT};

use super::mutated::world::{self, CLIENT4, SERVICE4};
use super::node::{VIP, given, with_node};

const IGMP: u8 = 2;
const GRE: u8 = 47;
const ESP: u8 = 50;
const NO_NEXT_HEADER: u8 = 59;

/// An ICMPv6 message of this type: identifier 1, sequence number 1.
fn icmp(kind: u8, target: std::net::Ipv6Addr) -> Vec<u8> {
    let message = [kind, 0, 0, 0, 0, 1, 0, 1];
    seal(ipv6(MACS, (ICMPV6, 64), (CLIENT, target), &message), 2)
}

#[test]
fn an_echo_request_and_other_protocols_are_refused() {
    with_node(|node| {
        let datapath = node.open();
        for frame in [
            icmp(128, VIP),
            ipv6(MACS, (GRE, 64), (CLIENT, VIP), &[0; 16]),
            ipv6(MACS, (NO_NEXT_HEADER, 64), (CLIENT, VIP), &[]),
        ] {
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(sum(&run.frame), 0xffff);
            assert_eq!(run.frame[20], ICMPV6);
            assert_eq!(run.frame[22..38], VIP.octets(), "from the VIP");
            assert_eq!(run.frame[38..54], CLIENT.octets());
            assert_eq!(run.frame[54..56], [1, 4], "port unreachable");
            assert_eq!(run.frame[HEADERS + 8..], frame[14..], "with the packet");
        }
        assert_eq!(given(&datapath, Verdict::RejectedProtocol), 3);
    });
}

/// An IPv4 packet to the VIP of a Service; `fragment` is the word of flags and offset.
fn ipv4(protocol: u8, fragment: u16) -> Vec<u8> {
    let echo = Opening {
        source: (CLIENT4, 0).into(),
        target: (SERVICE4, 0).into(),
        protocol: ICMP,
    };
    let mut frame = echo.frame();
    frame[20..22].copy_from_slice(&fragment.to_be_bytes());
    frame[23] = protocol;
    frame[24..26].fill(0);
    let sum = !ones_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn an_echo_request_and_other_protocols_are_refused_by_ipv4_too() {
    with_node(|node| {
        let datapath = world::open(node);
        for protocol in [ICMP, IGMP, GRE, ESP] {
            let frame = ipv4(protocol, 0);
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            assert_eq!(run.verdict, REDIRECT, "protocol {protocol}");
            assert_eq!(ones_sum(&run.frame[14..34]), 0xffff);
            assert_eq!(run.frame[23], ICMP);
            assert_eq!(run.frame[26..30], SERVICE4.octets(), "from the VIP");
            assert_eq!(run.frame[30..34], CLIENT4.octets());
            assert_eq!(run.frame[34..36], [3, 3], "port unreachable");
        }
        assert_eq!(given(&datapath, Verdict::RejectedProtocol), 4);
        // Of a fragmented ping the first fragment may be answered, the others end.
        let run = datapath.programs.run(Hook::UplinkIn, &ipv4(ICMP, 100));
        assert_eq!(run.unwrap().verdict, DROP);
    });
}

#[test]
fn what_must_not_be_answered_is_dropped() {
    with_node(|node| {
        let datapath = node.open();
        // An error about a packet that no connection here has sent; echo reply; neighbour discovery.
        let quoted = ipv6(MACS, (6, 64), (VIP, CLIENT), &[0; 20]);
        let error = [&[1, 4, 0, 0, 0, 0, 0, 0][..], &quoted[14..]].concat();
        let error = seal(ipv6(MACS, (ICMPV6, 64), (CLIENT, VIP), &error), 2);
        for frame in [
            error,
            icmp(129, VIP),
            solicitation(MACS, (CLIENT, VIP), VIP, &[]),
        ] {
            let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
            assert_eq!(run.verdict, DROP);
        }
        assert_eq!(given(&datapath, Verdict::DroppedProtocol), 3);
    });
}

#[test]
fn the_nodes_own_ping_to_a_vip_does_not_leave() {
    with_node(|node| {
        let datapath = node.open();
        let mut frame = icmp(128, VIP);
        frame[22..38].copy_from_slice(&dormouse_rig::address::NODE.octets());
        let run = datapath
            .programs
            .run(Hook::UplinkOut, &seal(frame, 2))
            .unwrap();
        assert_eq!(run.verdict, DROP);
    });
}

#[test]
fn a_ping_to_a_pod_is_left_alone() {
    with_node(|node| {
        let datapath = node.open();
        let frame = icmp(128, POD);
        let run = datapath.programs.run(Hook::UplinkIn, &frame).unwrap();
        assert_eq!((run.verdict, run.frame), (NEXT, frame));
    });
}
