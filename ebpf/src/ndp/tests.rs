//! Solicitations by the letter of RFC 4861, valid and spoiled in every way it names.

use super::*;
use crate::packet::ETHERTYPE_IPV6;
use crate::packet::Read;

const ASKER: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const POD: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xd0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 7];
const GROUP: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 7];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const UPLINK: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NODE: Neighbor<'_> = Neighbor {
    mac: &UPLINK,
    is_router: false,
};
const SLLA: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
const NONCE: [u8; 8] = [14, 1, 1, 2, 3, 4, 5, 6];

fn frame(source: [u8; 16], to: [u8; 16], options: &[u8]) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(POD);
    message.extend(options);
    let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 7];
    frame.extend(MAC);
    frame.extend(ETHERTYPE_IPV6);
    let len = u16::try_from(message.len()).unwrap().to_be_bytes();
    frame.extend([0x60, 0, 0, 0, len[0], len[1], ICMPV6, 255]);
    frame.extend(source);
    frame.extend(to);
    frame.extend(message);
    seal(frame)
}

fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    frame[L4 + 2] = 0;
    frame[L4 + 3] = 0;
    let sum = sum(&frame);
    frame[L4 + 2..L4 + 4].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The checksum over the frame's message as RFC 4443 defines it, without the code under test.
fn sum(frame: &[u8]) -> u16 {
    let message = &frame[L4..];
    let mut words: Vec<u8> = frame[22..54].to_vec();
    words.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    words.extend([0, 0, 0, 58]);
    words.extend(message);
    let total: u32 = words
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    !u16::try_from((total & 0xffff) + (total >> 16)).unwrap_or_else(|_| panic!("carry"))
}

fn read(frame: &[u8]) -> Option<Solicitation> {
    let mut packet = Packet::default();
    match packet::read(&frame, &mut packet) {
        Read::Other => {
            let mut found = Solicitation::default();
            solicitation(&frame, &packet, &mut found).then_some(found)
        }
        _ => None,
    }
}

#[test]
fn an_address_resolution_is_answered_to_the_asker_solicited() {
    let solicitation = read(&frame(ASKER, GROUP, &SLLA)).unwrap();
    assert_eq!(
        solicitation,
        Solicitation {
            source: ASKER,
            mac: MAC,
            target: POD
        }
    );
    let answer = answer(&solicitation);
    assert_eq!(answer[..6], MAC);
    assert_eq!(answer[6..12], UPLINK);
    assert_eq!(answer[20..22], [58, 255]);
    assert_eq!(answer[22..38], POD);
    assert_eq!(answer[38..54], ASKER);
    assert_eq!(answer[54..56], [136, 0]);
    assert_eq!(answer[58..62], [0x60, 0, 0, 0], "S and O, not R");
    assert_eq!(answer[62..78], POD);
    assert_eq!(answer[78..80], [2, 1]);
    assert_eq!(answer[80..], UPLINK);
    let mut unsealed = answer.to_vec();
    unsealed[L4 + 2..L4 + 4].fill(0);
    assert_eq!(answer[L4 + 2..L4 + 4], sum(&unsealed).to_be_bytes());
}

#[test]
fn a_unicast_probe_without_option_is_answered_to_the_frames_sender() {
    assert_eq!(read(&frame(ASKER, POD, &[])).unwrap().mac, MAC);
}

#[test]
fn duplicate_address_detection_is_answered_to_all_nodes_unsolicited() {
    for options in [&[][..], &NONCE] {
        let solicitation = read(&frame(UNSPECIFIED, GROUP, options)).unwrap();
        let answer = answer(&solicitation);
        assert_eq!(answer[..6], ALL_NODES_MAC);
        assert_eq!(answer[38..54], ALL_NODES);
        assert_eq!(answer[58], OVERRIDE);
    }
}

#[test]
fn what_the_rfc_calls_invalid_is_not_read() {
    let good = frame(ASKER, GROUP, &SLLA);
    let spoiled = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        read(&seal(frame))
    };
    assert!(spoiled(L4, 135).is_some());
    assert_eq!(spoiled(21, 254), None, "hop limit");
    assert_eq!(spoiled(L4, 133), None, "type");
    assert_eq!(spoiled(L4 + 1, 1), None, "code");
    assert_eq!(spoiled(L4 + 8, 0xff), None, "multicast target");
    assert_eq!(spoiled(L4 + 25, 0), None, "option of length zero");
    assert_eq!(spoiled(12, 8), None, "not IPv6");
    let mut unsealed = good.clone();
    unsealed[L4 + 2] ^= 1;
    assert_eq!(read(&unsealed), None, "checksum");
    assert_eq!(
        read(&frame(UNSPECIFIED, GROUP, &SLLA)),
        None,
        "unspecified source with its address"
    );
    assert_eq!(
        read(&frame(UNSPECIFIED, POD, &[])),
        None,
        "unspecified source to a unicast address"
    );
}

#[test]
fn a_solicitation_cut_anywhere_is_not_read() {
    let good = frame(ASKER, GROUP, &SLLA);
    for len in 0..good.len() {
        assert_eq!(read(&good[..len]), None, "{len}");
    }
}

/// An option of a kind that RFC 4861 does not have, of this many units.
fn unknown(units: u8) -> Vec<u8> {
    let mut option = vec![0xfd; usize::from(units) * 8];
    option[1] = units;
    option
}

#[test]
fn unknown_options_are_skipped_wherever_they_are() {
    let other = [1, 1, 2, 0, 0, 0, 0, 8];
    for (options, mac) in [
        (vec![&unknown(1)[..]], MAC),
        (vec![&unknown(3), &other], [2, 0, 0, 0, 0, 8]),
        (vec![&other, &unknown(2), &NONCE], [2, 0, 0, 0, 0, 8]),
        (vec![&other, &SLLA], [2, 0, 0, 0, 0, 8]),
        (vec![&unknown(32)], MAC),
    ] {
        let solicitation = read(&frame(ASKER, GROUP, &options.concat()));
        assert_eq!(solicitation.unwrap().mac, mac, "{options:?}");
    }
    let detection = frame(UNSPECIFIED, GROUP, &[&NONCE[..], &unknown(2)].concat());
    assert!(read(&detection).is_some());
}

#[test]
fn options_that_do_not_fill_the_message_make_it_invalid() {
    let mut too_long = unknown(2);
    too_long[1] = 3;
    let mut empty = unknown(1);
    empty[1] = 0;
    let long_address = [1, 2, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    for options in [
        too_long,
        empty.clone(),
        [&SLLA[..], &empty].concat(),
        [&SLLA[..], &[0xfd]].concat(),
        [&SLLA[..], &[0xfd, 1, 0, 0, 0, 0]].concat(),
        long_address.to_vec(),
        unknown(33),
    ] {
        assert_eq!(read(&frame(ASKER, GROUP, &options)), None, "{options:?}");
    }
    let detection = frame(UNSPECIFIED, GROUP, &[&unknown(1)[..], &SLLA].concat());
    assert_eq!(read(&detection), None, "its address behind another option");
}

#[test]
fn a_router_advertises_itself_as_one() {
    let mut answer = [0; ADVERTISEMENT_LEN];
    let router = Neighbor {
        is_router: true,
        ..NODE
    };
    let solicitation = read(&frame(ASKER, GROUP, &SLLA)).unwrap();
    advertise(&solicitation, router, &mut answer);
    assert_eq!(answer[58], 0xe0, "R, S and O");
}

fn answer(solicitation: &Solicitation) -> [u8; ADVERTISEMENT_LEN] {
    let mut frame = [0xaa; ADVERTISEMENT_LEN];
    advertise(solicitation, NODE, &mut frame);
    frame
}

#[test]
fn so_is_one_of_ipv4() {
    let mut redirect = [0_u8; L3 + 28];
    redirect[12..14].copy_from_slice(&packet::ETHERTYPE_IPV4);
    (redirect[L3], redirect[L3 + 9], redirect[L3 + 20]) = (0x45, 1, 5);
    assert!(is_redirect(&&redirect[..]));
    for (at, other) in [(12, 0x86), (L3, 0x46), (L3 + 9, 6), (L3 + 20, 3)] {
        let mut frame = redirect;
        frame[at] = other;
        assert!(!is_redirect(&&frame[..]));
    }
}

#[test]
fn a_redirect_is_told_from_what_looks_like_one() {
    let mut redirect = frame(ASKER, POD, &[]);
    assert!(!is_redirect(&&redirect[..]));
    redirect[L4] = REDIRECT;
    assert!(is_redirect(&&redirect[..]));
    assert!(!is_redirect(&&redirect[..L4]));
    for (at, other) in [(12, 8), (20, 17)] {
        let mut frame = redirect.clone();
        frame[at] = other;
        assert!(!is_redirect(&&frame[..]));
    }
}
