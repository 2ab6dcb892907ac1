//! The internet checksum (RFC 1071), over arrays of fixed size, which every verifier accepts; and SCTP's.

mod sctp;

pub use sctp::{crc32c, crc32c_replace};

/// Adds `bytes` to a sum; an odd last byte counts as if followed by a zero.
///
/// Words are summed in the machine's byte order: a one's complement sum is the same in either order, except for the order of
/// its own bytes (RFC 1071, 2 B), which [`finish`] corrects.
#[inline(always)]
pub fn add<const N: usize>(mut sum: u64, bytes: &[u8; N]) -> u64 {
    let mut at = 0;
    while at + 3 < N {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        sum += u64::from(u32::from_ne_bytes(word));
        at += 4;
    }
    if at + 1 < N {
        sum += u64::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        at += 2;
    }
    if at < N {
        sum += u64::from(u16::from_ne_bytes([bytes[at], 0]));
    }
    sum
}

/// Adds the pseudo-header of IPv6 (RFC 8200, 8.1).
#[inline(always)]
pub fn pseudo(source: &[u8; 16], target: &[u8; 16], len: u16, next_header: u8) -> u64 {
    let rest = u64::from(len.to_be()) + u64::from(u16::from(next_header).to_be());
    add(add(rest, source), target)
}

/// Folds a sum into 16 bits and takes its complement: what goes into the header, 0 when verified over a right one.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the sum was folded into 16 bits"
)]
pub const fn finish(sum: u64) -> u16 {
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16 & 0xffff) + (folded >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    u16::from_be(!(((folded & 0xffff) + (folded >> 16)) as u16))
}

#[cfg(test)]
mod tests;
