//! Against the definitions, bit by bit.

use super::*;
use proptest::prelude::*;

/// The definition, byte by byte.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for (at, &byte) in bytes.iter().enumerate() {
        sum += u64::from(byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

#[test]
fn the_example_of_rfc_1071_sums_to_its_result() {
    let sum = add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(finish(sum), !0xddf2);
}

/// RFC 9260's polynomial in its usual bit order, one bit at a time.
fn naive_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let feedback = crc >> 31 ^ u32::from(byte >> bit) & 1;
            crc = (crc << 1) ^ (feedback * 0x1edc_6f41);
        }
    }
    !crc.reverse_bits()
}

#[test]
fn the_examples_of_rfc_3720_have_their_crcs() {
    let ascending: Vec<u8> = (0..32).collect();
    for (bytes, expected) in [
        ([0; 32].as_slice(), 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&ascending, 0x46dd_794e),
        (b"123456789", 0xe306_9283),
    ] {
        assert_eq!(crc32c(bytes.iter().copied()), expected);
        assert_eq!(naive_crc32c(bytes), expected);
    }
}

#[test]
fn a_change_is_carried_past_any_number_of_bytes() {
    for following in [0, 1, 15, 16, 17, 255, 256, 4095, 4096, 65_533, 65_535] {
        let mut packet = vec![0xa5; following + 2];
        let before = naive_crc32c(&packet);
        (packet[0], packet[1]) = (0x12, 0x34);
        let changed = crc32c_replace(
            before,
            [0xa5; 2],
            [0x12, 0x34],
            u32::try_from(following).unwrap(),
        );
        assert_eq!(changed, naive_crc32c(&packet), "{following}");
    }
}

proptest! {
    #[test]
    fn a_changed_port_changes_the_crc_as_if_computed_anew(
        mut packet in proptest::collection::vec(any::<u8>(), 12..1500),
        port: [u8; 2],
        is_target: bool,
    ) {
        // The checksum's field counts as zero (RFC 9260 6.8).
        packet[8..12].fill(0);
        let at = if is_target { 2 } else { 0 };
        let before = crc32c(packet.iter().copied());
        let old = [packet[at], packet[at + 1]];
        packet[at..at + 2].copy_from_slice(&port);
        let following = u32::try_from(packet.len() - at - 2).unwrap();
        let after = crc32c_replace(before, old, port, following);
        prop_assert_eq!(after, naive_crc32c(&packet));
    }

    #[test]
    fn the_sum_equals_its_definition(even: [u8; 32], odd: [u8; 7]) {
        prop_assert_eq!(finish(add(0, &even)), naive(&even));
        prop_assert_eq!(finish(add(0, &odd)), naive(&odd));
    }

    #[test]
    fn a_message_with_its_checksum_verifies(mut message: [u8; 32], source: [u8; 16], target: [u8; 16]) {
        message[2] = 0;
        message[3] = 0;
        let sum = finish(add(pseudo(&source, &target, 32, 58), &message));
        [message[2], message[3]] = sum.to_be_bytes();
        prop_assert_eq!(finish(add(pseudo(&source, &target, 32, 58), &message)), 0);
    }
}
