//! IP fragments: classified and checked by the same rules for IPv4 and IPv6.

use super::{Packet, Payload, Read};

/// Not a fragment; or an atomic one, which is the whole packet (RFC 6946).
pub const WHOLE: u16 = 0;
/// The first fragment: the transport header is here.
pub const FIRST: u16 = 1;
/// Any other fragment.
pub const LATER: u16 = 2;

/// Fragments are cut at multiples of so many bytes (RFC 791 3.2; RFC 8200 4.5).
const UNIT: usize = 8;
/// The longest payload of a reassembled packet, in bytes.
const REACH_MAX: usize = 65_535;

/// Classifies `payload` as a fragment or a whole packet.
#[inline(always)]
pub(super) const fn note(payload: Payload, more: bool, packet: &mut Packet) -> Result<(), Read> {
    packet.fragment = match (payload.offset, more) {
        (0, false) => WHOLE,
        (0, true) => FIRST,
        _ => LATER,
    };
    let len = payload.end - payload.at;
    if packet.fragment != WHOLE && len == 0
        || more && !len.is_multiple_of(UNIT)
        || payload.offset + len > REACH_MAX
    {
        return Err(Read::Malformed);
    }
    Ok(())
}
