//! The internet checksum (RFC 1071): over fixed stack copies only, which every verifier accepts.

/// Adds `bytes` to a sum; an odd last byte counts as if followed by a zero.
#[inline(always)]
pub fn add<const N: usize>(mut sum: u32, bytes: &[u8; N]) -> u32 {
    let mut at = 0;
    while at + 1 < N {
        sum += u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        at += 2;
    }
    if at < N {
        sum += u32::from(bytes[at]) << 8;
    }
    sum
}

/// Adds the pseudo-header of IPv6 (RFC 8200, 8.1).
#[inline(always)]
pub fn pseudo(source: &[u8; 16], target: &[u8; 16], len: u16, next_header: u8) -> u32 {
    add(add(u32::from(len) + u32::from(next_header), source), target)
}

/// Folds a sum into 16 bits and takes its complement: what goes into the header, 0 when verified over a right one.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the sum was folded into 16 bits"
)]
pub const fn finish(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
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

    proptest! {
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
}
