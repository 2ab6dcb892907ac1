//! The internet checksum (RFC 1071), over fixed stack copies only, which every verifier accepts; and SCTP's.

mod sctp;

pub use sctp::{crc32c, crc32c_replace};

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
mod tests;
