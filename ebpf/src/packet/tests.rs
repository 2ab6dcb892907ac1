//! Frames by the book and against it: each header chain, each cut, each lie.

mod build;
mod properties;

use super::*;
use build::{
    ATOMIC, AUTHENTICATION, DESTINATION, FIRST_OF_MANY, FRAGMENT, HOP_BY_HOP, LAST_OF_MANY,
    ROUTING, chain, extension, fragment, icmp, ipv4, ipv4_fragment, ipv6, sctp, tcp, udp,
};

fn reads(frame: &[u8]) -> (Read, Packet) {
    let mut packet = Packet::default();
    (read(&frame, &mut packet), packet)
}

fn verdict(frame: &[u8]) -> Read {
    reads(frame).0
}

fn ports(packet: &Packet) -> (u16, u16) {
    (packet.source_port, packet.target_port)
}

#[test]
fn a_tcp_segment_is_read_whole() {
    let (read, packet) = reads(&ipv6(TCP, &tcp(SYN)));
    assert_eq!(read, Read::Transport);
    let expected = Packet {
        source: build::SOURCE,
        target: build::TARGET,
        source_port: 40_000,
        target_port: 80,
        l4: 54,
        len: 60,
        protocol: TCP,
        hop_limit: 64,
        flags: SYN,
        ..Packet::default()
    };
    assert_eq!(packet, expected);
}

#[test]
fn ipv4_is_read_with_its_addresses_mapped_and_its_options_passed_over() {
    let router_alert = [0x94, 0x04, 0, 0];
    let (read, packet) = reads(&ipv4(UDP, &router_alert, &udp(&[7; 3])));
    assert_eq!(read, Read::Transport);
    assert_eq!((packet.v4, packet.l4, packet.len), (1, 38, 35));
    assert_eq!(packet.source, mapped([192, 0, 2, 1]));
    assert_eq!(v4_of(&packet.target), [198, 51, 100, 2]);
    assert!(is_v4(&packet.source) && !is_v4(&build::SOURCE));
    assert_eq!((ports(&packet), packet.hop_limit), ((40_000, 80), 63));
}

#[test]
fn every_extension_header_is_walked() {
    for kind in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION] {
        for more in [0, 1, 5] {
            let (header, rest) = (extension(kind, UDP, more), udp(&[]));
            let (read, packet) = reads(&ipv6(kind, &[header.clone(), rest].concat()));
            assert_eq!((read, packet.protocol), (Read::Transport, UDP), "{kind}");
            assert_eq!(usize::from(packet.l4), 54 + header.len(), "{kind}");
        }
    }
}

#[test]
fn four_extension_headers_are_walked_and_five_are_no_packet() {
    let four = [HOP_BY_HOP, DESTINATION, ROUTING, DESTINATION];
    assert_eq!(verdict(&chain(&four, TCP, &tcp(ACK))), Read::Transport);
    let five = [
        HOP_BY_HOP,
        DESTINATION,
        ROUTING,
        AUTHENTICATION,
        DESTINATION,
    ];
    assert_eq!(verdict(&chain(&five, TCP, &tcp(ACK))), Read::Malformed);
    assert_eq!(EXTENSIONS_MAX, four.len());
}

#[test]
fn headers_that_stand_once_are_not_read_twice() {
    for kinds in [[HOP_BY_HOP; 2], [DESTINATION, HOP_BY_HOP], [FRAGMENT; 2]] {
        let frame = chain(&kinds, UDP, &udp(&[]));
        assert_eq!(verdict(&frame), Read::Malformed, "{kinds:?}");
    }
}

#[test]
fn a_header_that_reaches_beyond_the_packet_is_none() {
    for kind in [HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION] {
        let mut header = extension(kind, UDP, 0);
        header[1] = 200;
        let frame = ipv6(kind, &[header, udp(&[])].concat());
        assert_eq!(verdict(&frame), Read::Malformed, "{kind}");
    }
}

#[test]
fn a_route_that_is_not_walked_to_its_end_is_the_kernels() {
    let mut header = extension(ROUTING, UDP, 0);
    header[3] = 1;
    let frame = ipv6(ROUTING, &[header.clone(), udp(&[])].concat());
    let (read, packet) = reads(&frame);
    assert_eq!(
        (read, packet.protocol, packet.routed),
        (Read::Other, UDP, 1)
    );

    // Further headers are walked, so that the last one is known.
    header[0] = DESTINATION;
    let rest = [extension(DESTINATION, 58, 0), icmp(134)].concat();
    let (read, packet) = reads(&ipv6(ROUTING, &[header.clone(), rest].concat()));
    assert_eq!((read, packet.protocol), (Read::Other, 58));
    assert_eq!((packet.flags, packet.l4), (134, 54 + 16));

    header[0] = FRAGMENT;
    let rest = fragment(UDP, LAST_OF_MANY, &[0; 8]);
    let frame = ipv6(ROUTING, &[header, rest].concat());
    assert_eq!(verdict(&frame), Read::Other, "a later fragment");
}

#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    let frame = ipv6(FRAGMENT, &fragment(TCP, ATOMIC, &tcp(SYN)));
    let (read, packet) = reads(&frame);
    assert_eq!((read, packet.fragment), (Read::Transport, WHOLE));
    assert_eq!((packet.l4, ports(&packet)), (62, (40_000, 80)));
}

#[test]
fn a_first_fragment_has_ports_and_a_later_one_has_none() {
    let payload = [tcp(ACK), vec![0; 4]].concat();
    let first = reads(&ipv6(FRAGMENT, &fragment(TCP, FIRST_OF_MANY, &payload)));
    assert_eq!((first.0, first.1.fragment), (Read::Transport, FIRST));
    assert_eq!((first.1.id, first.1.l4), (build::ID, 62));

    let later = reads(&ipv6(FRAGMENT, &fragment(TCP, LAST_OF_MANY, &[1; 3])));
    assert_eq!((later.0, later.1.fragment), (Read::Fragment, LATER));
    assert_eq!((later.1.id, later.1.protocol), (build::ID, TCP));
    assert_eq!((later.1.l4, ports(&later.1)), (0, (0, 0)));
}

#[test]
fn fragments_of_ipv4_are_told_apart_likewise() {
    let first = reads(&ipv4_fragment(UDP, 0x2000, &build::udp_of(1000, &[0; 8])));
    assert_eq!((first.0, first.1.fragment), (Read::Transport, FIRST));
    let later = reads(&ipv4_fragment(UDP, 2, &[0; 5]));
    assert_eq!((later.0, later.1.fragment), (Read::Fragment, LATER));
    assert_eq!((first.1.id, later.1.id), (0xbeef, 0xbeef));
    let middle = reads(&ipv4_fragment(SCTP, 0x2002, &[0; 8]));
    assert_eq!((middle.0, middle.1.fragment), (Read::Fragment, LATER));
    let icmp = reads(&ipv4_fragment(ICMP, 2, &[0; 5]));
    assert_eq!(icmp.0, Read::Other);
    let do_not_fragment = reads(&ipv4_fragment(TCP, 0x4000, &tcp(ACK)));
    assert_eq!(do_not_fragment.1.fragment, WHOLE);
}

#[test]
fn a_first_fragment_without_its_whole_transport_header_is_an_attack() {
    let mut options = tcp(SYN);
    options[12] = 7 << 4;
    for (protocol, payload) in [
        (TCP, &tcp(SYN)[..16]),
        (TCP, &[options, vec![1; 4]].concat()[..24]),
        (SCTP, &sctp(INIT)[..8]),
    ] {
        let frame = ipv6(FRAGMENT, &fragment(protocol, FIRST_OF_MANY, payload));
        assert_eq!(verdict(&frame), Read::Malformed, "{protocol}");
    }
    let hidden = [extension(DESTINATION, UDP, 0), vec![]].concat();
    let frame = ipv6(FRAGMENT, &fragment(DESTINATION, FIRST_OF_MANY, &hidden));
    assert_eq!(
        verdict(&frame),
        Read::Malformed,
        "ports in the next fragment"
    );
}

#[test]
fn a_later_fragment_that_reaches_into_the_transport_header_is_an_attack() {
    for (protocol, offset, expected) in [
        (TCP, 1, Read::Malformed),
        (TCP, 2, Read::Malformed),
        (TCP, 3, Read::Fragment),
        (SCTP, 1, Read::Malformed),
        (SCTP, 2, Read::Fragment),
        (UDP, 1, Read::Fragment),
    ] {
        let v4 = ipv4_fragment(protocol, offset, &[0; 8]);
        assert_eq!(verdict(&v4), expected, "{protocol} {offset}");
        let v6 = ipv6(FRAGMENT, &fragment(protocol, offset << 3, &[0; 8]));
        assert_eq!(verdict(&v6), expected, "{protocol} {offset}");
    }
}

#[test]
fn fragments_that_cannot_be_put_together_are_none() {
    let odd = fragment(UDP, FIRST_OF_MANY, &build::udp_of(100, &[0; 3]));
    assert_eq!(verdict(&ipv6(FRAGMENT, &odd)), Read::Malformed);
    let empty = fragment(UDP, LAST_OF_MANY, &[]);
    assert_eq!(verdict(&ipv6(FRAGMENT, &empty)), Read::Malformed);
    let ping_of_death = ipv4_fragment(UDP, 0x1fff, &[0; 8]);
    assert_eq!(verdict(&ping_of_death), Read::Malformed);
}

#[test]
fn a_later_fragment_behind_options_is_a_fragment_of_who_knows_what() {
    let (read, packet) = reads(&ipv6(
        FRAGMENT,
        &fragment(DESTINATION, LAST_OF_MANY, &[0; 8]),
    ));
    assert_eq!((read, packet.protocol), (Read::Fragment, DESTINATION));
    let frame = ipv6(FRAGMENT, &fragment(HOP_BY_HOP, LAST_OF_MANY, &[0; 8]));
    assert_eq!(verdict(&frame), Read::Other);
}

#[test]
fn lengths_that_lie_are_no_packet() {
    let with = |mut frame: Vec<u8>, at: usize, value: u16| {
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        verdict(&frame)
    };
    let (v6, v4) = (ipv6(UDP, &udp(&[])), ipv4(UDP, &[], &udp(&[])));
    assert_eq!(with(v6.clone(), 18, 9), Read::Malformed, "beyond the frame");
    assert_eq!(with(v6.clone(), 18, 7), Read::Malformed, "into the header");
    assert_eq!(with(v6.clone(), 18, 0), Read::Malformed, "a jumbogram");
    assert_eq!(with(v6.clone(), 58, 7), Read::Malformed, "UDP too short");
    assert_eq!(with(v6, 58, 9), Read::Malformed, "UDP beyond the packet");
    assert_eq!(
        with(v4.clone(), 16, 29),
        Read::Malformed,
        "beyond the frame"
    );
    assert_eq!(with(v4, 16, 19), Read::Malformed, "within its own header");
}

#[test]
fn header_lengths_and_versions_that_cannot_be_are_no_packet() {
    let with = |mut frame: Vec<u8>, at: usize, value: u8| {
        frame[at] = value;
        verdict(&frame)
    };
    let (v4, v6) = (ipv4(TCP, &[], &tcp(ACK)), ipv6(TCP, &tcp(ACK)));
    assert_eq!(with(v4.clone(), L3, 0x44), Read::Malformed);
    assert_eq!(with(v4.clone(), L3, 0x4f), Read::Malformed);
    assert_eq!(with(v4, L3, 0x65), Read::Malformed);
    assert_eq!(with(v6.clone(), L3, 0x40), Read::Malformed);
    assert_eq!(with(v6.clone(), 66, 4 << 4), Read::Malformed);
    assert_eq!(with(v6, 66, 6 << 4), Read::Malformed);
}

#[test]
fn what_ethernet_adds_behind_a_packet_is_not_part_of_it() {
    let frame = [ipv4(UDP, &[], &udp(&[])), vec![0; 18]].concat();
    let (read, packet) = reads(&frame);
    assert_eq!((read, packet.len), (Read::Transport, 28));
    let cut = [ipv4(TCP, &[], &tcp(ACK)[..8]), vec![0; 18]].concat();
    assert_eq!(verdict(&cut), Read::Malformed);
}

#[test]
fn errors_are_told_from_other_icmp() {
    for kind in 0..=u8::MAX {
        let is = |error| if error { Read::Error } else { Read::Other };
        let v6 = ipv6(ICMPV6, &icmp(kind));
        assert_eq!(verdict(&v6), is((1..=4).contains(&kind)), "{kind}");
        let v4 = ipv4(ICMP, &[], &icmp(kind));
        assert_eq!(verdict(&v4), is([3, 11, 12].contains(&kind)), "{kind}");
    }
    assert_eq!(reads(&ipv6(ICMPV6, &icmp(1))).1.l4, 54);
    assert_eq!(verdict(&ipv6(ICMPV6, &icmp(1)[..7])), Read::Malformed);
    assert_eq!(verdict(&ipv6(ICMPV6, &[])), Read::Malformed);
    assert_eq!(verdict(&ipv6(ICMP, &icmp(3))), Read::Other, "of the other");
}

#[test]
fn what_is_not_translated_is_the_kernels() {
    let arp = [&[0; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    assert_eq!(verdict(&arp), Read::Other);
    for protocol in [2, 4, 41, 47, 50, 59, 89, 135, 253] {
        assert_eq!(verdict(&ipv6(protocol, &[0; 8])), Read::Other, "{protocol}");
        assert_eq!(verdict(&ipv4(protocol, &[], &[0; 8])), Read::Other);
    }
}

#[test]
fn an_error_quotes_a_packet_of_which_eight_bytes_are_enough() {
    let (v6, v4) = (ipv6(TCP, &tcp(ACK)), ipv4(SCTP, &[], &sctp(0)));
    let frame6 = ipv6(ICMPV6, &[icmp(1), v6[L3..L3 + 48].to_vec()].concat());
    let frame4 = ipv4(ICMP, &[], &[icmp(3), v4[L3..L3 + 28].to_vec()].concat());
    for (frame, is_v4, protocol, at, l4) in
        [(frame6, false, TCP, 62, 102), (frame4, true, SCTP, 42, 62)]
    {
        let mut packet = Packet::default();
        assert_eq!(verdict(&frame), Read::Error);
        assert!(quoted(&frame.as_slice(), at, is_v4, &mut packet));
        assert_eq!((packet.protocol, ports(&packet)), (protocol, (40_000, 80)));
        assert_eq!((packet.l4, packet.v4 == 1, packet.flags), (l4, is_v4, 0));
        let cut = &frame[..frame.len() - 1];
        assert!(!quoted(&cut, at, is_v4, &mut packet));
    }
}

#[test]
fn nothing_without_ports_counts_as_quoted() {
    let quotes = |frame: Vec<u8>| quoted(&frame.as_slice(), L3, false, &mut Packet::default());
    assert!(quotes(chain(&[HOP_BY_HOP, FRAGMENT], UDP, &udp(&[]))));
    assert!(!quotes(ipv6(ICMPV6, &icmp(128))));
    assert!(!quotes(ipv6(
        FRAGMENT,
        &fragment(TCP, LAST_OF_MANY, &[0; 8])
    )));
    assert!(!quotes(ipv4(TCP, &[], &tcp(ACK))));
}

#[test]
fn tcp_and_sctp_flags_open_reset_and_close() {
    let flags_of = |frame: Vec<u8>| {
        let packet = reads(&frame).1;
        (packet.opens(), packet.resets(), packet.closes())
    };
    let about_tcp = |flags| flags_of(ipv6(TCP, &tcp(flags)));
    assert_eq!(about_tcp(SYN), (true, false, false));
    assert_eq!(about_tcp(SYN | ACK), (false, false, false));
    assert_eq!(about_tcp(FIN | ACK), (false, false, true));
    assert_eq!(about_tcp(RST), (false, true, true));
    let about_sctp = |chunk| flags_of(ipv4(SCTP, &[], &sctp(chunk)));
    assert_eq!(about_sctp(INIT), (true, false, false));
    assert_eq!(about_sctp(2), (false, false, false), "INIT ACK");
    assert_eq!(about_sctp(ABORT), (false, true, true));
    assert_eq!(about_sctp(SHUTDOWN_COMPLETE), (false, false, true));
    assert!(reads(&ipv6(UDP, &udp(&[]))).1.begins());
    assert!(!reads(&ipv6(TCP, &tcp(ACK))).1.begins());
    assert!(!reads(&ipv6(SCTP, &sctp(0)[..12])).1.begins());
}

#[test]
fn martians_are_known_by_either_end() {
    let good = mapped([192, 0, 2, 1]);
    let is_martian = |source, target, v4| {
        let packet = Packet {
            source,
            target,
            v4,
            ..Packet::default()
        };
        packet.is_martian()
    };
    let sources = [
        [0, 1, 2, 3],
        [127, 9, 9, 9],
        [224, 0, 0, 1],
        [239, 1, 1, 1],
        [255; 4],
    ];
    for source in sources {
        assert!(is_martian(mapped(source), good, 1), "{source:?}");
    }
    assert!(is_martian(good, mapped([127, 0, 0, 1]), 1));
    assert!(is_martian(good, mapped([0; 4]), 1));
    assert!(!is_martian(good, mapped([224, 0, 0, 1]), 1));
    assert!(!is_martian(mapped([0; 4]), mapped([255; 4]), 1), "DHCP");
    assert!(!is_martian(good, good, 1));

    let (host, mut loopback, mut multicast) = (build::SOURCE, [0; 16], [1; 16]);
    (loopback[15], multicast[0]) = (1, 0xff);
    for home in [loopback, [0; 16]] {
        assert!(is_martian(home, host, 0) && is_martian(host, home, 0));
    }
    assert!(is_martian(multicast, host, 0) && !is_martian(host, multicast, 0));
    assert!(!is_martian(host, host, 0));
}

#[test]
fn an_ipv4_address_in_an_ipv6_header_is_forged() {
    for at in [L3 + 8, L3 + 24] {
        let mut frame = ipv6(UDP, &udp(&[]));
        frame[at..at + 16].copy_from_slice(&mapped([192, 0, 2, 1]));
        assert_eq!(verdict(&frame), Read::Malformed);
        assert!(!quoted(
            &frame.as_slice(),
            L3,
            false,
            &mut Packet::default()
        ));
    }
}

#[test]
fn the_longest_packet_is_read() {
    let frame = ipv4(UDP, &[], &udp(&vec![0; 65_535 - 28]));
    let (read, packet) = reads(&frame);
    assert_eq!((read, packet.len), (Read::Transport, u16::MAX));
    let frame = ipv6(UDP, &udp(&vec![0; 65_535 - 8]));
    let (read, packet) = reads(&frame);
    assert_eq!((read, packet.len), (Read::Transport, u16::MAX));
}
