//! IPv4 (RFC 791): the header; options are skipped.

use super::{Aligned, Frame, Packet, Payload, Read, fragment, mapped, without_header};

const HEADER_MIN: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Parses the IPv4 header at offset `at`.
#[inline(always)]
pub(super) fn read<F: Frame>(frame: &F, at: usize, packet: &mut Packet) -> Result<Payload, Read> {
    let Some(Aligned(header)) = frame.load::<HEADER_MIN>(at) else {
        return without_header(packet, Read::Malformed);
    };
    let [
        first,
        _,
        len_0,
        len_1,
        id_0,
        id_1,
        fragment_0,
        fragment_1,
        ..,
    ] = header;
    let [
        ..,
        hop_limit,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        t0,
        t1,
        t2,
        t3,
    ] = header;
    *packet = Packet {
        source: mapped([s0, s1, s2, s3]),
        target: mapped([t0, t1, t2, t3]),
        len: u16::from_be_bytes([len_0, len_1]),
        id: u32::from(u16::from_be_bytes([id_0, id_1])),
        protocol,
        hop_limit,
        v4: 1,
        ..Packet::default()
    };

    let header_len = usize::from(first & 15) * 4;
    let len = usize::from(packet.len);
    if first >> 4 != 4 || header_len < HEADER_MIN || len < header_len {
        return Err(Read::Malformed);
    }
    let place = u16::from_be_bytes([fragment_0, fragment_1]);
    let payload = Payload {
        at: at + header_len,
        end: at + len,
        offset: usize::from(place & FRAGMENT_OFFSET) * 8,
    };
    fragment::note(payload, place & MORE_FRAGMENTS != 0, packet)?;
    Ok(payload)
}

/// Whether a target never crosses a network: this host in RFC 6890, 127.0.0.0/8 and 0.0.0.0.
#[inline(always)]
pub(super) const fn is_this_host(address: [u8; 4]) -> bool {
    address[0] == 127 || u32::from_be_bytes(address) == 0
}

/// Whether a host without an address sends to all of its link: DHCP's DISCOVER and REQUEST (RFC 2131 4.1).
#[inline(always)]
pub(super) const fn asks_for_address(source: [u8; 4], target: [u8; 4]) -> bool {
    u32::from_be_bytes(source) == 0 && u32::from_be_bytes(target) == u32::MAX
}

/// Whether a source is no host's address: 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/4 or 255.255.255.255.
#[inline(always)]
pub(super) const fn is_no_source(address: [u8; 4]) -> bool {
    matches!(address[0], 0 | 127 | 224..=239) || u32::from_be_bytes(address) == u32::MAX
}
