//! What holds for every frame: made header by header rather than of noise, so that most get far.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::build::{self, AUTHENTICATION, DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
use super::{reads, verdict};
use crate::packet::{EXTENSIONS_MAX, Packet, Read, SCTP, TCP, UDP, quoted};

prop_compose! {
    /// Extension headers as RFC 8200 4.1 orders them.
    fn kinds()(
        first in proptest::option::of(Just(HOP_BY_HOP)),
        mut rest in prop::collection::vec(select(vec![ROUTING, AUTHENTICATION, DESTINATION]), 0..3),
        cut in proptest::option::of(any::<Index>()),
    ) -> Vec<u8> {
        if let Some(at) = cut {
            rest.insert(at.index(rest.len() + 1), FRAGMENT);
        }
        first.into_iter().chain(rest).take(EXTENSIONS_MAX).collect()
    }
}

prop_compose! {
    fn transport()(
        protocol in select(vec![TCP, UDP, SCTP]),
        flags: u8,
        data in prop::collection::vec(any::<u8>(), 0..40),
    ) -> (u8, Vec<u8>) {
        let header = match protocol {
            TCP => build::tcp(flags),
            UDP => build::udp(&data),
            _ => build::sctp(flags),
        };
        let data = if protocol == UDP { vec![] } else { data };
        (protocol, [header, data].concat())
    }
}

prop_compose! {
    /// A valid frame, and where its transport header begins.
    fn valid()(
        kinds in kinds(),
        (protocol, payload) in transport(),
        options in prop::collection::vec(any::<[u8; 4]>(), 0..=10),
        v4: bool,
    ) -> (Vec<u8>, usize, u8) {
        let frame = if v4 {
            build::ipv4(protocol, &options.concat(), &payload)
        } else {
            build::chain(&kinds, protocol, &payload)
        };
        let l4 = frame.len() - payload.len();
        (frame, l4, protocol)
    }
}

proptest! {
    #[test]
    fn a_valid_packet_gives_back_its_fields((frame, l4, protocol) in valid()) {
        let (read, packet) = reads(&frame);
        prop_assert_eq!(read, Read::Transport);
        prop_assert_eq!((usize::from(packet.l4), packet.protocol), (l4, protocol));
        prop_assert_eq!(usize::from(packet.len), frame.len() - 14);
        prop_assert_eq!((packet.source_port, packet.target_port), (40_000, 80));
        prop_assert_eq!(packet.routed, 0);
    }

    #[test]
    fn a_valid_packet_cut_anywhere_is_none((frame, ..) in valid(), at: Index) {
        let cut = &frame[..at.index(frame.len())];
        prop_assert_eq!(verdict(cut), Read::Malformed);
    }

    #[test]
    fn a_quoted_packet_is_the_one_that_was_read((frame, ..) in valid()) {
        let (_, packet) = reads(&frame);
        let mut again = Packet::default();
        prop_assert!(quoted(&frame.as_slice(), 14, packet.v4 == 1, &mut again));
        prop_assert_eq!(again, Packet { flags: 0, ..packet });
    }

    #[test]
    fn whatever_bytes_are_changed_what_is_read_lies_in_the_frame(
        (mut frame, ..) in valid(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        lies_in_frame(&frame)?;
    }

    #[test]
    fn no_noise_makes_the_reader_fail(
        ethertype in select(vec![[0x86, 0xdd], [0x08, 0x00]]),
        noise in prop::collection::vec(any::<u8>(), 0..200),
        at in 0_usize..300,
        v4: bool,
    ) {
        let frame = [&[0; 12][..], &ethertype, &noise].concat();
        lies_in_frame(&frame)?;
        let _ = quoted(&frame.as_slice(), at, v4, &mut Packet::default());
    }
}

fn lies_in_frame(frame: &[u8]) -> Result<(), TestCaseError> {
    let (read, packet) = reads(frame);
    let least = match (read, packet.protocol) {
        (Read::Transport, TCP) => 20,
        (Read::Transport, SCTP) => 12,
        (Read::Transport | Read::Error, _) => 8,
        _ => return Ok(()),
    };
    prop_assert!(usize::from(packet.l4) + least <= frame.len());
    prop_assert!(usize::from(packet.len) + 14 <= frame.len());
    prop_assert_eq!(packet.v4 == 1, crate::packet::is_v4(&packet.source));
    Ok(())
}
