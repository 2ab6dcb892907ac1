//! Against the definitions: a frame is translated right if its headers are, and its checksums hold.

use proptest::prelude::*;

use super::*;
use crate::flow::SERVICE;
use crate::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Read, mapped, read};

const ACK: u8 = 0x10;
const PUSH: u8 = 0x18;

/// A request's entry after the connection is established.
fn request(kind: u32) -> Flow {
    let flow = Flow {
        kind,
        ..Flow::default()
    };
    let packet = packet(TCP, ACK);
    let first = Stage::NEW.after_client(&packet);
    Flow {
        stage: first.0,
        ..flow
    }
}

fn reply(kind: u32) -> Flow {
    let stage = Stage::NEW.after_backend(&packet(TCP, ACK));
    Flow {
        stage: stage.0,
        ..request(kind | REPLY)
    }
}

/// A plain packet of IPv6.
fn packet(protocol: u8, flags: u8) -> Packet {
    Packet {
        l4: u16::try_from(L4).unwrap(),
        protocol,
        flags,
        hop_limit: 64,
        ..Packet::default()
    }
}

#[test]
fn data_of_an_established_connection_is_steady_in_both_directions() {
    for flow in [request(0), request(SERVICE | MASQUERADED), reply(SERVICE)] {
        for packet in [packet(TCP, ACK), packet(TCP, PUSH), packet(UDP, 0)] {
            assert!(is_steady(&packet, &flow), "{packet:?} {flow:?}");
        }
    }
}

#[test]
fn what_changes_an_entry_is_not_steady() {
    let data = packet(TCP, ACK);
    let with = |change: fn(&mut Packet)| {
        let mut packet = data;
        change(&mut packet);
        packet
    };
    let packets = [
        ("a SYN", packet(TCP, 0x02)),
        ("a SYN with ACK", packet(TCP, 0x12)),
        ("a FIN", packet(TCP, 0x11)),
        ("a RST", packet(TCP, 0x04)),
        ("SCTP", packet(crate::packet::SCTP, 0)),
        ("the last hop", with(|packet| packet.hop_limit = 1)),
        (
            "a fragment",
            with(|packet| packet.fragment = crate::packet::FIRST),
        ),
        ("options", with(|packet| packet.l4 += 8)),
    ];
    for (name, packet) in packets {
        assert!(!is_steady(&packet, &request(SERVICE)), "{name}");
    }
    let flows = [
        ("revoked", request(REVOKED)),
        ("by the host", request(BY_HOST)),
        ("opening", request(OPENING | SERVICE)),
        (
            "the second packet",
            Flow {
                stage: Stage::NEW.0,
                ..request(0)
            },
        ),
        (
            "the first answer",
            Flow {
                stage: Stage::NEW.0,
                ..reply(0)
            },
        ),
    ];
    for (name, flow) in flows {
        assert!(!is_steady(&data, &flow), "{name}");
    }
}

#[test]
fn datagrams_without_an_answer_are_steady_where_an_answer_would_be_seen() {
    let data = packet(UDP, 0);
    assert!(is_steady(&data, &request(OPENING | SERVICE)));
    assert!(
        !is_steady(&data, &request(OPENING | FORWARDED)),
        "the second one establishes it"
    );
    assert!(
        !is_steady(&data, &reply(OPENING)),
        "the answer establishes it"
    );
}

#[test]
fn the_other_entry_is_needed_by_masquerading_and_at_the_end_of_a_message() {
    let (data, push) = (packet(TCP, ACK), packet(TCP, PUSH));
    assert!(needs_other(&data, &request(MASQUERADED)));
    assert!(!needs_other(&data, &request(SERVICE)));
    assert!(!needs_other(&data, &reply(MASQUERADED)));
    assert!(needs_other(&push, &request(SERVICE)) && needs_other(&push, &reply(MASQUERADED)));
}

/// The internet checksum by its definition: 0 over bytes that include a right one.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([word[0], low]))
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// The sum over a transport header with its data, and the pseudo-header.
fn transport_sum(frame: &[u8], v4: bool, protocol: u8) -> u16 {
    let l4 = if v4 { L4_OF_V4 } else { L4 };
    let addresses = if v4 { 26..34 } else { 22..54 };
    let len = u16::try_from(frame.len() - l4).unwrap().to_be_bytes();
    let rest = [0, protocol, len[0], len[1]];
    sum(&[&frame[addresses], &rest, &frame[l4..]].concat())
}

prop_compose! {
    /// A frame of IPv4 or IPv6, TCP or UDP, with right checksums, and a flow of the same family.
    fn translated()(
        v4: bool,
        udp: bool,
        addresses: [[u8; 16]; 4],
        ports: [u16; 4],
        hops in 2_u8..,
        data in prop::collection::vec(any::<u8>(), 0..40),
        forwarded: bool,
    ) -> (Vec<u8>, bool, u8, Flow) {
        let protocol = if udp { UDP } else { TCP };
        let [source, target, new_source, new_target] =
            addresses.map(|address| if v4 { mapped(v4_of(&address)) } else { address });
        let flow = Flow {
            source: new_source,
            target: new_target,
            source_port: ports[2],
            target_port: ports[3],
            kind: if forwarded { FORWARDED } else { SERVICE },
            ..Flow::default()
        };
        let mut header = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
        if udp {
            header.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
            header.extend([0, 0]);
        } else {
            header.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, ACK, 0xff, 0xff, 0, 0, 0, 0]);
        }
        let payload = [header, data].concat();
        let len = u16::try_from(payload.len()).unwrap();
        let mut frame = vec![2; 12];
        if v4 {
            frame.extend(ETHERTYPE_IPV4);
            frame.extend([0x45, 0]);
            frame.extend((len + 20).to_be_bytes());
            frame.extend([0xbe, 0xef, 0x40, 0, hops, protocol, 0, 0]);
            frame.extend(v4_of(&source));
            frame.extend(v4_of(&target));
            let check = sum(&frame[14..34]).to_be_bytes();
            frame[24..26].copy_from_slice(&check);
        } else {
            frame.extend(ETHERTYPE_IPV6);
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([protocol, hops]);
            frame.extend(source);
            frame.extend(target);
        }
        let l4 = frame.len();
        frame.extend(payload);
        let check = match transport_sum(&frame, v4, protocol) {
            0 if udp => UDP_ZERO,
            check => check,
        };
        let at = l4 + if udp { 6 } else { 16 };
        frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
        (frame, v4, protocol, flow)
    }
}

/// Translates a frame as the program does; the size of its headers.
fn run(frame: &mut [u8], packet: &Packet, flow: &Flow) -> usize {
    fn of<const N: usize>(frame: &mut [u8], packet: &Packet, flow: &Flow) -> usize {
        translate::<N>(frame.first_chunk_mut().unwrap(), packet, flow);
        N
    }
    match (packet.v4, packet.protocol) {
        (1, TCP) => of::<TCP4>(frame, packet, flow),
        (1, _) => of::<UDP4>(frame, packet, flow),
        (_, TCP) => of::<TCP6>(frame, packet, flow),
        _ => of::<UDP6>(frame, packet, flow),
    }
}

proptest! {
    #[test]
    fn a_translated_frame_has_the_ends_of_its_flow_and_right_checksums(
        (before, v4, protocol, flow) in translated(),
    ) {
        let (mut packet, mut after) = (Packet::default(), before.clone());
        // Martians are no concern here.
        prop_assume!(read(&before.as_slice(), &mut packet) == Read::Transport);
        let size = run(&mut after, &packet, &flow);
        let mut new = Packet::default();
        prop_assert_eq!(read(&after.as_slice(), &mut new), Read::Transport);
        let (source, target) = if flow.is(FORWARDED) {
            ((packet.source, packet.source_port), (packet.target, packet.target_port))
        } else {
            ((flow.source, flow.source_port), (flow.target, flow.target_port))
        };
        prop_assert_eq!((new.source, new.source_port), source);
        prop_assert_eq!((new.target, new.target_port), target);
        prop_assert_eq!(new.hop_limit, packet.hop_limit - 1);
        prop_assert_eq!(transport_sum(&after, v4, protocol), 0);
        if v4 {
            prop_assert_eq!(sum(&after[14..34]), 0);
        }
        prop_assert_eq!(&after[size..], &before[size..]);
    }

    #[test]
    fn a_datagram_without_a_checksum_gets_none((before, v4, protocol, flow) in translated()) {
        prop_assume!(v4 && protocol == UDP);
        let (mut packet, mut after) = (Packet::default(), before.clone());
        after[40..42].fill(0);
        prop_assume!(read(&after.as_slice(), &mut packet) == Read::Transport);
        run(&mut after, &packet, &flow);
        prop_assert_eq!(&after[40..42], &[0, 0]);
    }
}
