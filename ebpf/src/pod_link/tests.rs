//! Each message that a pod may send to its link, from each address that it may use or forge.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::checksum;
use crate::ndp::solicitation;
use crate::packet::{ETHERTYPE_IPV6, LATER, read};

const POD: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 7];
const POD_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7];
const POD4: [u8; 4] = [192, 0, 2, 7];
/// Another pod, and a link-local address that a guest kernel derives from its link-layer address (RFC 4291 app. A).
const OTHER: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 8];
const OTHER_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8];
const GUEST: [u8; 16] = [
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xd0, 0, 0xff, 0xfe, 1, 0, 7,
];
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const GROUP: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1];
const MAC: [u8; 6] = [2, 0xd0, 0, 1, 0, 7];

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const FORGED: Judgement = Judgement::Drop(Verdict::DroppedNeighbor);
const UNUSED: Judgement = Judgement::Drop(Verdict::DroppedLink);
const SPOOFED: Judgement = Judgement::Drop(Verdict::DroppedSpoofed);

/// The pod with the addresses above.
struct Own;

impl Owner for Own {
    fn owns(&self, address: &[u8; 16]) -> bool {
        *address == POD || *address == mapped(POD4)
    }

    fn node_prefix(&self) -> &[u8; 16] {
        &[0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    }
}

/// A frame of the pod with these extension headers, each with the segments left (or fragment offset) given.
fn frame(
    (source, target): ([u8; 16], [u8; 16]),
    chain: &[(u8, u8)],
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let (mut next, mut bytes) = (protocol, payload.to_vec());
    for &(kind, left) in chain.iter().rev() {
        let more = u8::from(kind == FRAGMENT && left == 0);
        bytes = [&[next, 0, 0, left | more, 0, 0, 0, 0][..], &bytes].concat();
        next = kind;
    }
    let mut frame = [&[2; 6][..], &MAC, &ETHERTYPE_IPV6, &[0x60, 0, 0, 0]].concat();
    frame.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
    frame.extend([next, 255]);
    frame.extend(source);
    frame.extend(target);
    frame.extend(bytes);
    frame
}

/// A message of neighbour discovery about `about`, with a right checksum.
fn message(kind: u8, ends: ([u8; 16], [u8; 16]), about: [u8; 16]) -> Vec<u8> {
    let mut message = [0; 24];
    message[0] = kind;
    message[8..].copy_from_slice(&about);
    let sum = checksum::add(checksum::pseudo(&ends.0, &ends.1, 24, ICMPV6), &message);
    message[2..4].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    message.to_vec()
}

fn judged(frame: &[u8]) -> Judgement {
    let mut packet = Packet::default();
    let found = read(&frame, &mut packet);
    let mut solicited = Solicitation::default();
    let is_valid = solicitation(&frame, &packet, &mut solicited);
    judge(
        &frame,
        (found, &packet),
        &Own,
        is_valid.then_some(&solicited),
    )
}

fn said(kind: u8, source: [u8; 16], about: [u8; 16]) -> Judgement {
    let ends = (source, ALL_NODES);
    judged(&frame(ends, &[], ICMPV6, &message(kind, ends, about)))
}

#[test]
fn only_solicitations_for_the_gateway_are_answered() {
    let asked = |source, target| {
        let ends = (source, GROUP);
        judged(&frame(ends, &[], ICMPV6, &message(135, ends, target)))
    };
    for source in [POD, POD_LOCAL, GUEST, UNSPECIFIED] {
        assert_eq!(asked(source, GATEWAY), Judgement::Answer, "{source:?}");
        for target in [POD, POD_LOCAL, OTHER, OTHER_LOCAL] {
            assert_eq!(asked(source, target), FORGED, "{source:?} {target:?}");
        }
    }
    assert_eq!(asked(OTHER, GATEWAY), FORGED);
}

#[test]
fn a_pod_advertises_its_own_addresses_from_its_own() {
    for source in [
        POD,
        POD_LOCAL,
        OTHER,
        OTHER_LOCAL,
        GUEST,
        UNSPECIFIED,
        GATEWAY,
    ] {
        for target in [POD, POD_LOCAL, OTHER, OTHER_LOCAL, GUEST, GATEWAY] {
            let own = |address| [POD, POD_LOCAL].contains(&address);
            let allowed = own(source) && own(target);
            let expected = if allowed { Judgement::Pass } else { FORGED };
            assert_eq!(said(136, source, target), expected, "{source:?} {target:?}");
        }
    }
}

#[test]
fn a_pod_is_no_router_and_reports_no_groups() {
    for source in [POD, POD_LOCAL, OTHER_LOCAL, UNSPECIFIED] {
        for kind in [134, 137] {
            assert_eq!(said(kind, source, OTHER), FORGED, "{kind}");
        }
        for kind in [130, 131, 132, 133, 141, 142, 143, 148, 149, 151, 152, 153] {
            assert_eq!(said(kind, source, OTHER), UNUSED, "{kind}");
        }
    }
}

#[test]
fn a_ping_is_no_message_of_the_link_and_its_source_is_checked() {
    for (source, expected) in [
        (POD, Judgement::Pass),
        (POD_LOCAL, Judgement::Pass),
        (OTHER, SPOOFED),
        (OTHER_LOCAL, SPOOFED),
        (GUEST, SPOOFED),
        (UNSPECIFIED, SPOOFED),
        (GATEWAY, SPOOFED),
    ] {
        assert_eq!(said(128, source, OTHER), expected, "{source:?}");
        let udp = frame((source, GATEWAY), &[], 17, &[0, 9, 0, 9, 0, 8, 0, 0]);
        if source != POD {
            assert_eq!(judged(&udp), SPOOFED, "a datagram from {source:?}");
        }
    }
}

#[test]
fn nothing_leaves_the_link_from_a_link_local_address() {
    let ping = |target| {
        let echo = [128, 0, 0, 0, 0, 1, 0, 1];
        judged(&frame((POD_LOCAL, target), &[], ICMPV6, &echo))
    };
    for target in [GATEWAY, ALL_NODES] {
        assert_eq!(ping(target), Judgement::Pass, "{target:?}");
    }
    for target in [POD, OTHER] {
        assert_eq!(ping(target), SPOOFED, "{target:?}");
    }
}

#[test]
fn fragments_and_routes_of_a_message_are_dropped_with_it() {
    let ends = (POD_LOCAL, ALL_NODES);
    for chain in [
        &[(FRAGMENT, 0)][..],
        &[(ROUTING, 1)],
        &[(HOP_BY_HOP, 0), (ROUTING, 1), (DESTINATION, 0)],
    ] {
        for (kind, about) in [(135, GATEWAY), (136, POD), (134, OTHER)] {
            let frame = frame(ends, chain, ICMPV6, &message(kind, ends, about));
            assert_eq!(judged(&frame), FORGED, "{kind} behind {chain:?}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_precedes_a_message_it_is_judged_by_its_last_header(
        kind in select(vec![130_u8, 133, 134, 135, 137, 143]),
        source in select(vec![POD, POD_LOCAL, OTHER_LOCAL, UNSPECIFIED]),
        chain in prop::collection::vec(
            (select(vec![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION]), 0_u8..3), 0..5),
    ) {
        let ends = (source, ALL_NODES);
        let bytes = frame(ends, &chain, ICMPV6, &message(kind, ends, OTHER));
        let mut packet = Packet::default();
        // Later fragments have no header: without their first one they are never put together.
        if read(&&bytes[..], &mut packet) == Read::Other && packet.fragment != LATER {
            prop_assert!(is_of_link(&packet));
            prop_assert!(matches!(judged(&bytes), Judgement::Drop(_)));
        }
    }
}

fn arp(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend(MAC);
    frame.extend(POD4);
    frame.extend([0; 6]);
    frame.extend(GATEWAY4);
    change(&mut frame);
    frame
}

#[test]
fn only_the_pods_arp_requests_for_the_gateway_are_answered() {
    // Padded to the least length of a frame.
    let request = arp(|frame| frame.resize(60, 0));
    assert!(asks_for_gateway(&&request[..], &Own));
    for (at, value, what) in [
        (15, 6, "another link layer"),
        (16, 0x86, "another protocol"),
        (18, 8, "longer link-layer addresses"),
        (19, 16, "longer addresses"),
        (21, 2, "a reply"),
        (31, 8, "another sender"),
        (41, 2, "another target"),
    ] {
        let frame = arp(|frame| frame[at] = value);
        assert!(!asks_for_gateway(&&frame[..], &Own), "{what}");
    }
    let gratuitous = arp(|frame| frame[38..42].copy_from_slice(&POD4));
    assert!(!asks_for_gateway(&&gratuitous[..], &Own));
    for len in 14..42 {
        assert!(!asks_for_gateway(&&arp(|_| ())[..len], &Own), "{len} bytes");
    }
}

#[test]
fn the_gateways_addresses_in_arp_are_the_gateways() {
    assert_eq!(ARP_GATEWAY[..6], GATEWAY_MAC);
    assert_eq!(ARP_GATEWAY[6..], GATEWAY4);
}
