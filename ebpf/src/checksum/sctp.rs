//! SCTP's checksum, CRC32c (RFC 9260 6.8, appendix A), updated incrementally, without reading the whole packet.
//!
//! A CRC is the packet's remainder as a polynomial over GF(2), bits reversed: the highest bit is x^0. Addition is XOR,
//! so the CRC of a changed packet is the old one plus the remainder of the difference, times x^(8 * bytes that follow) for
//! its place in the packet. The checksum's own field counts as zero, so it adds no difference.

/// The polynomial, without its x^32.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0.
const ONE: u32 = 1 << 31;
/// A length in bytes has four digits of four bits.
const DIGITS: usize = 4;
/// Values of four bits.
const VALUES: usize = 16;
/// The remainders of four bits times x^32.
const REMAINDERS: [u32; VALUES] = remainders();
/// x^(8 * value * 16^digit): the factor for as many bytes that follow.
const PLACES: [[u32; VALUES]; DIGITS] = places();

/// CRC32c, as little-endian u32 in an SCTP packet, of `bytes` with the checksum's field zero.
pub fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(u32::MAX, push)
}

/// CRC32c after two bytes of an SCTP packet changed; it and `crc` as read as little-endian u32.
///
/// `following` counts the packet's bytes after the changed ones: below 65 536.
#[inline(always)]
pub fn crc32c_replace(crc: u32, old: [u8; 2], new: [u8; 2], following: u32) -> u32 {
    let mut difference = push(push(0, old[0] ^ new[0]), old[1] ^ new[1]);
    let mut rest = following as usize;
    for place in &PLACES {
        difference = multiply(difference, place[rest % VALUES]);
        rest /= VALUES;
    }
    crc ^ difference
}

/// The remainder after one more byte.
#[inline(always)]
fn push(remainder: u32, byte: u8) -> u32 {
    shift::<2>(remainder ^ u32::from(byte))
}

/// The remainder times x^(4 * `N`).
#[inline(always)]
const fn shift<const N: usize>(mut remainder: u32) -> u32 {
    let mut at = 0;
    while at < N {
        remainder = remainder >> 4 ^ REMAINDERS[remainder as usize % VALUES];
        at += 1;
    }
    remainder
}

/// `a` times `b`: first as polynomials, then the remainder.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are meant")]
const fn multiply(a: u32, b: u32) -> u32 {
    let product = carryless(a, b) << 1;
    (product >> 32) as u32 ^ shift::<8>(product as u32)
}

/// The product of polynomials over GF(2), without a branch, because the verifier would check both ways of each.
///
/// One bit of every four is kept, so that the at most eight carries of an integer product stay in the gaps.
#[inline(always)]
const fn carryless(a: u32, b: u32) -> u64 {
    const HOLES: u64 = 0x1111_1111_1111_1111;
    let (a, b) = (a as u64, b as u64);
    let mut product = 0;
    let mut i = 0;
    while i < 16 {
        let (of_a, of_b) = (i / 4, i % 4);
        let holed = (a & HOLES << of_a).wrapping_mul(b & HOLES << of_b);
        product ^= holed & HOLES << ((of_a + of_b) % 4);
        i += 1;
    }
    product
}

const fn remainders() -> [u32; VALUES] {
    let mut remainders = [0; VALUES];
    let mut value = 0_u32;
    while (value as usize) < VALUES {
        let mut remainder = value;
        let mut bit = 0;
        while bit < 4 {
            remainder = (remainder >> 1) ^ (POLYNOMIAL * (remainder & 1));
            bit += 1;
        }
        remainders[value as usize] = remainder;
        value += 1;
    }
    remainders
}

const fn places() -> [[u32; VALUES]; DIGITS] {
    let mut places = [[ONE; VALUES]; DIGITS];
    let mut step = ONE >> 8;
    let mut digit = 0;
    while digit < DIGITS {
        let mut value = 1;
        while value < VALUES {
            places[digit][value] = multiply(places[digit][value - 1], step);
            value += 1;
        }
        step = multiply(places[digit][VALUES - 1], step);
        digit += 1;
    }
    places
}
