//! Every answer is read back, and its checksums verified, as its receiver would.

use super::*;
use crate::packet::{self, FIRST, Read, SCTP, UDP, WHOLE, mapped};
use proptest::prelude::*;

/// The RFC's sum over all of `bytes`, pseudo-header excluded: 0 if they verify.
fn verify(sum: u32, bytes: &[u8]) -> u16 {
    let whole = bytes.chunks(2).fold(sum, |sum, pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        sum + u32::from(u16::from_be_bytes([pair[0], low]))
    });
    checksum::finish(whole.into())
}

/// The pseudo-header of RFC 9293 3.1 or RFC 8200 8.1, from the IP header itself.
fn pseudo(ip: &[u8], protocol: u8, len: usize) -> u32 {
    let addresses = if ip[0] >> 4 == 4 {
        &ip[12..20]
    } else {
        &ip[8..40]
    };
    let words = addresses
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    words.sum::<u32>() + u32::from(protocol) + u32::try_from(len).unwrap()
}

fn reads(ethertype: [u8; 2], ip: &[u8]) -> (Read, Packet) {
    let frame = [&[0; 12][..], &ethertype, ip].concat();
    let mut packet = Packet::default();
    (packet::read(&frame.as_slice(), &mut packet), packet)
}

fn refused(v4: bool) -> Packet {
    let (source, target) = if v4 {
        (mapped([192, 0, 2, 1]), mapped([198, 51, 100, 2]))
    } else {
        ([0x20; 16], [0x21; 16])
    };
    Packet {
        source,
        target,
        source_port: 40_000,
        target_port: 80,
        protocol: TCP,
        v4: u8::from(v4),
        ..Packet::default()
    }
}

fn segment(sequence: u32, acknowledged: u32, flags: u8) -> [u8; 20] {
    let mut header = [0; 20];
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    (header[12], header[13]) = (5 << 4, flags);
    header
}

fn numbers(tcp: &[u8]) -> (u32, u32, u8) {
    let number = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
    (number(4), number(8), tcp[13])
}

fn padded(quote: &[u8]) -> [u8; QUOTE_MAX] {
    let mut bytes = [0; QUOTE_MAX];
    bytes[..quote.len()].copy_from_slice(quote);
    bytes
}

#[test]
fn a_syn_is_reset_with_what_it_sent_acknowledged() {
    let answer =
        written(|answer| reset_v6(&refused(false), &segment(u32::MAX, 7, 0x02), 1, answer));
    assert_eq!(numbers(&answer[40..]), (0, 0, RST | ACK));
    let answer = written(|answer| reset_v4(&refused(true), &segment(5, 7, 0x03), 102, answer));
    assert_eq!(numbers(&answer[20..]), (0, 107, RST | ACK));
}

#[test]
fn a_segment_with_ack_is_reset_where_it_expects() {
    let answer = written(|answer| reset_v6(&refused(false), &segment(5, 7, ACK), 100, answer));
    assert_eq!(numbers(&answer[40..]), (7, 0, RST));
}

#[test]
fn an_error_says_that_the_port_is_unreachable() {
    let v6 = written(|answer| unreachable_v6(&refused(false), &padded(&[1; 48]), 48, answer));
    assert_eq!(
        (&v6[4..8], &v6[40..42]),
        (&[0, 56, 58, 64][..], &[1, 4][..])
    );
    let v4 = written(|answer| unreachable_v4(&refused(true), &padded(&[1; 48]), 48, answer));
    assert_eq!((&v4[2..4], &v4[20..22]), (&[0, 76][..], &[3, 3][..]));
    assert_eq!((v4[8], v4[9]), (64, ICMP));
}

#[test]
fn what_must_not_be_refused_is_not() {
    for v4 in [false, true] {
        let good = refused(v4);
        assert!(may_reject(&good));
        assert!(may_reject(&Packet {
            fragment: FIRST,
            ..good
        }));
        assert!(may_reject(&Packet {
            protocol: UDP,
            flags: 0,
            ..good
        }));
        assert!(!may_reject(&Packet {
            fragment: LATER,
            ..good
        }));
        assert!(!may_reject(&Packet {
            flags: RST | ACK,
            ..good
        }));
        let abort = Packet {
            protocol: SCTP,
            flags: 6,
            ..good
        };
        assert!(!may_reject(&abort) && may_reject(&Packet { flags: 1, ..abort }));
        // 47: GRE. 8 and 128: echo requests, each of its family only; 0 and 129: their replies.
        assert!(may_reject(&Packet {
            protocol: 47,
            flags: 0,
            ..good
        }));
        let (own, other, request) = if good.v4 == 1 {
            (ICMP, ICMPV6, 8)
        } else {
            (ICMPV6, ICMP, 128)
        };
        let message = |protocol, flags| Packet {
            flags,
            protocol,
            ..good
        };
        assert!(may_reject(&message(own, request)));
        assert!(!may_reject(&message(other, request)));
        for flags in [0, 1, 3, 129, 135] {
            assert!(!may_reject(&message(own, flags)), "ICMP type {flags}");
        }
    }
}

#[test]
fn nobody_and_everybody_are_not_answered() {
    let good = refused(true);
    for address in [
        [224, 0, 0, 1],
        [255; 4],
        [127, 0, 0, 1],
        [0; 4],
        [240, 0, 0, 1],
    ] {
        let address = mapped(address);
        assert!(
            !may_reject(&Packet {
                target: address,
                ..good
            }),
            "{address:?}"
        );
        assert!(
            !may_reject(&Packet {
                source: address,
                ..good
            }),
            "{address:?}"
        );
    }
    let (good, mut multicast) = (refused(false), [2; 16]);
    multicast[0] = 0xff;
    for address in [multicast, [0; 16]] {
        assert!(
            !may_reject(&Packet {
                target: address,
                ..good
            }),
            "{address:?}"
        );
        assert!(
            !may_reject(&Packet {
                source: address,
                ..good
            }),
            "{address:?}"
        );
    }
}

proptest! {
    #[test]
    fn resets_verify_and_go_back(mut header: [u8; 20], len in 0_u32..70_000, v4: bool, ports: [u16; 2]) {
        header[12] = 5 << 4;
        let [source_port, target_port] = ports;
        let packet = Packet { source_port, target_port, ..refused(v4) };
        let (answer, at, ethertype) = if v4 {
            (written(|answer| reset_v4(&packet, &header, len, answer)), 20, packet::ETHERTYPE_IPV4)
        } else {
            (written(|answer| reset_v6(&packet, &header, len, answer)), 40, packet::ETHERTYPE_IPV6)
        };
        let (ip, tcp) = answer.split_at(at);
        prop_assert_eq!(verify(pseudo(ip, TCP, tcp.len()), tcp), 0);
        prop_assert!(!v4 || verify(0, ip) == 0);
        let (read, back) = reads(ethertype, &answer);
        prop_assert_eq!(read, Read::Transport);
        prop_assert_eq!((back.source, back.target), (packet.target, packet.source));
        prop_assert_eq!((back.source_port, back.target_port), (target_port, source_port));
        prop_assert!(back.resets() && back.fragment == WHOLE);
    }

    #[test]
    fn errors_verify_and_go_back(quote in proptest::collection::vec(any::<u8>(), 0..=QUOTE_MAX), v4: bool) {
        let (packet, len) = (refused(v4), u16::try_from(quote.len()).unwrap());
        let (mut answer, at, ethertype) = if v4 {
            (written(|answer| unreachable_v4(&packet, &padded(&quote), len, answer)), 20, packet::ETHERTYPE_IPV4)
        } else {
            (written(|answer| unreachable_v6(&packet, &padded(&quote), len, answer)), 40, packet::ETHERTYPE_IPV6)
        };
        answer.extend(&quote);
        let (ip, icmp) = answer.split_at(at);
        let sum = if v4 { 0 } else { pseudo(ip, ICMPV6, icmp.len()) };
        prop_assert_eq!(verify(sum, icmp), 0);
        prop_assert!(!v4 || verify(0, ip) == 0);
        let (read, back) = reads(ethertype, &answer);
        prop_assert_eq!((read, back.len), (Read::Error, u16::try_from(answer.len()).unwrap()));
        prop_assert_eq!((back.source, back.target), (packet.target, packet.source));
    }
}

fn written<const IP: usize, const UPPER: usize>(
    write: impl FnOnce(&mut Rejection<IP, UPPER>),
) -> Vec<u8> {
    let mut answer = Rejection {
        ip: [0xaa; IP],
        upper: [0xaa; UPPER],
    };
    write(&mut answer);
    [&answer.ip[..], &answer.upper].concat()
}
