//! A pod's messages to its own link: its gateway answers for itself, and nothing else reaches the node.

use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_agent_datapath::{Datapath, Hook, PodEntry, Verdict};
use dormouse_rig::address::POD;
use dormouse_rig::frame::{ICMPV6, MACS, SYN, arp, behind, ipv6, seal, solicitation, sum, tcp};
use dormouse_rig::tcx::{DROP, NEXT, REDIRECT};

use super::node::{Node, given, with_node};

/// The test run's device is the loopback device of the namespace: this pod's link, for a test.
const LOOPBACK: u32 = 1;
const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 1, 0x20);
const OWN_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, 0x20);
const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const FORGED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 1, 0x21);
const FORGED_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, 0x21);
const FORGED4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 8);
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GATEWAY4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY_MAC: [u8; 6] = [2, 0xd0, 0, 0, 0, 1];
const NODE4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);
const SLLA: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
/// A destination option, a routing header with a segment left, a first fragment's header.
const OPTIONS: (u8, [u8; 8]) = (60, [0, 0, 1, 4, 0, 0, 0, 0]);
const ROUTE: (u8, [u8; 8]) = (43, [0, 0, 4, 1, 0, 0, 0, 0]);
const ROUTE_DONE: (u8, [u8; 8]) = (43, [0, 0, 4, 0, 0, 0, 0, 0]);
const FIRST: (u8, [u8; 8]) = (44, [0, 0, 0, 1, 0, 0, 0, 7]);

fn open(node: &Node) -> Datapath {
    let datapath = node.open();
    let pod = PodEntry {
        address: OWN,
        address4: Some(OWN4),
        ifindex: LOOPBACK,
        mac: MACS.0,
        direct: true,
    };
    datapath.pods.add(pod).unwrap();
    datapath
}

/// An ICMPv6 message about an address.
fn message(kind: u8, source: Ipv6Addr, about: Ipv6Addr) -> Vec<u8> {
    let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &about.octets()].concat();
    let frame = ipv6(MACS, (ICMPV6, 255), (source, ALL_NODES), &message);
    seal(frame, 2)
}

fn asks(source: Ipv6Addr, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    solicitation(MACS, (source, GROUP), target, options)
}

fn asks4(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    arp(1, [0xff; 6], (MACS.0, sender), ([0; 6], target))
}

/// Runs the pod's program over each frame: all end in `verdict`, and the counter counts all.
#[track_caller]
fn all_end(datapath: &Datapath, verdict: (u32, Verdict), frames: &[Vec<u8>]) {
    let before = given(datapath, verdict.1);
    for (place, frame) in frames.iter().enumerate() {
        let run = datapath.programs.run(Hook::PodIn, frame).unwrap();
        assert_eq!(run.verdict, verdict.0, "frame {place}: {frame:02x?}");
    }
    let counted = given(datapath, verdict.1) - before;
    assert_eq!(counted, frames.len() as u64, "{:?}", verdict.1);
}

#[test]
fn a_pod_that_solicits_its_gateway_gets_an_advertisement_of_a_router() {
    with_node(|node| {
        let datapath = open(node);
        let unknown = [&[0xfd, 2][..], &[7; 14], &SLLA].concat();
        for (source, options) in [
            (OWN, &SLLA[..]),
            (OWN_LOCAL, &unknown),
            // A guest kernel with a link-local address of its own choice.
            (FORGED_LOCAL, &[]),
            (Ipv6Addr::UNSPECIFIED, &[14, 1, 1, 2, 3, 4, 5, 6]),
        ] {
            let asked = asks(source, GATEWAY, options);
            let run = datapath.programs.run(Hook::PodIn, &asked).unwrap();
            assert_eq!((run.verdict, run.frame.len()), (REDIRECT, 86), "{source}");
            assert_eq!(sum(&run.frame), 0xffff);
            assert_eq!(run.frame[6..12], GATEWAY_MAC);
            assert_eq!(run.frame[22..38], GATEWAY.octets());
            assert_eq!(run.frame[54..56], [136, 0]);
            let detects = source.is_unspecified();
            let (to, flags) = if detects {
                (ALL_NODES, 0xa0)
            } else {
                (source, 0xe0)
            };
            assert_eq!(run.frame[38..54], to.octets());
            assert_eq!(run.frame[58], flags);
            assert_eq!(run.frame[62..78], GATEWAY.octets());
            assert_eq!(run.frame[78..86], [2, 1, 2, 0xd0, 0, 0, 0, 1]);
        }
        assert_eq!(given(&datapath, Verdict::GatewayAnswered), 4);
    });
}

#[test]
fn a_pod_that_asks_for_its_ipv4_gateway_by_arp_gets_a_reply() {
    with_node(|node| {
        let datapath = open(node);
        let run = datapath
            .programs
            .run(Hook::PodIn, &asks4(OWN4, GATEWAY4))
            .unwrap();
        assert_eq!(run.verdict, REDIRECT);
        let reply = arp(2, MACS.0, (GATEWAY_MAC, GATEWAY4), (MACS.0, OWN4));
        assert_eq!(run.frame, reply);
        assert_eq!(given(&datapath, Verdict::GatewayAnswered), 1);
    });
}

#[test]
fn all_other_neighbour_discovery_of_a_pod_is_dropped_and_counted() {
    with_node(|node| {
        let datapath = open(node);
        let invalid_option = [&SLLA[..], &[0xfd, 0, 0, 0, 0, 0, 0, 0]].concat();
        let truncated_option = [&SLLA[..], &[0xfd, 2, 0, 0, 0, 0, 0, 0]].concat();
        let arp_of = |operation, sender, target| {
            arp(operation, [0xff; 6], (MACS.0, sender), ([0; 6], target))
        };
        let forged = vec![
            asks(FORGED, GATEWAY, &SLLA),
            asks(POD, GATEWAY, &SLLA),
            asks(OWN, POD, &SLLA),
            asks(OWN_LOCAL, OWN_LOCAL, &SLLA),
            asks(Ipv6Addr::UNSPECIFIED, OWN, &[]),
            asks(Ipv6Addr::UNSPECIFIED, GATEWAY, &SLLA),
            asks(OWN, GATEWAY, &invalid_option),
            asks(OWN, GATEWAY, &truncated_option),
            message(136, OWN, FORGED),
            message(136, FORGED, FORGED),
            message(136, OWN, FORGED_LOCAL),
            message(136, OWN, GATEWAY),
            message(134, OWN, FORGED),
            message(134, FORGED_LOCAL, FORGED),
            message(137, GATEWAY, FORGED),
            arp_of(1, OWN4, NODE4),
            arp_of(1, OWN4, OWN4),
            arp_of(1, FORGED4, GATEWAY4),
            arp_of(2, OWN4, GATEWAY4),
            arp_of(2, OWN4, OWN4),
            arp_of(3, OWN4, GATEWAY4),
            asks4(OWN4, GATEWAY4)[..41].to_vec(),
        ];
        all_end(&datapath, (DROP, Verdict::DroppedNeighbor), &forged);
        let by_last_header: Vec<_> = [OPTIONS, ROUTE, ROUTE_DONE, FIRST]
            .iter()
            .flat_map(|(kind, header)| {
                [
                    message(134, OWN_LOCAL, FORGED),
                    message(136, OWN, FORGED),
                    asks(OWN, POD, &SLLA),
                ]
                .map(|frame| behind(*kind, header, &frame))
            })
            .collect();
        all_end(&datapath, (DROP, Verdict::DroppedNeighbor), &by_last_header);
    });
}

#[test]
fn reports_and_router_solicitations_of_a_pod_are_counted_apart() {
    with_node(|node| {
        let datapath = open(node);
        let mut other_ethertype = message(128, OWN, POD);
        other_ethertype[12..14].copy_from_slice(&[0x88, 0xcc]);
        let unused = vec![
            message(133, OWN_LOCAL, FORGED),
            message(143, OWN_LOCAL, FORGED),
            message(143, Ipv6Addr::UNSPECIFIED, FORGED),
            message(131, OWN, FORGED),
            message(130, FORGED_LOCAL, FORGED),
            // As MLD is sent: with a router alert (RFC 2711).
            behind(0, &[0, 0, 5, 2, 0, 0, 1, 0], &message(143, OWN_LOCAL, OWN)),
            other_ethertype,
        ];
        all_end(&datapath, (DROP, Verdict::DroppedLink), &unused);
    });
}

#[test]
fn packets_with_other_sources_are_dropped_as_spoofed() {
    with_node(|node| {
        let datapath = open(node);
        let spoofed = vec![
            tcp((FORGED, 1), (POD, 80), SYN),
            tcp((FORGED_LOCAL, 1), (GATEWAY, 80), SYN),
            tcp((OWN_LOCAL, 1), (GATEWAY, 80), SYN),
            message(128, FORGED, POD),
            message(128, FORGED_LOCAL, POD),
            message(128, Ipv6Addr::UNSPECIFIED, POD),
            behind(ROUTE.0, &ROUTE.1, &message(128, FORGED_LOCAL, POD)),
        ];
        all_end(&datapath, (DROP, Verdict::DroppedSpoofed), &spoofed);
    });
}

#[test]
fn a_pod_may_ping_and_advertise_its_own_addresses() {
    with_node(|node| {
        let datapath = open(node);
        for frame in [
            message(128, OWN, POD),
            message(128, OWN_LOCAL, GATEWAY),
            message(129, OWN_LOCAL, GATEWAY),
            message(136, OWN, OWN),
            message(136, OWN_LOCAL, OWN_LOCAL),
            behind(ROUTE.0, &ROUTE.1, &message(128, OWN, POD)),
        ] {
            let run = datapath.programs.run(Hook::PodIn, &frame).unwrap();
            assert_eq!((run.verdict, &run.frame), (NEXT, &frame));
        }
    });
}
