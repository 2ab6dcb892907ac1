//! IPv6 (RFC 8200): the header, and the extension headers.

use super::{Aligned, Frame, LATER, Packet, Payload, Read, fragment, is_v4, without_header};

/// The most extension headers of a packet; one with more is malformed.
pub const EXTENSIONS_MAX: usize = 4;

const HEADER_LEN: u16 = 40;
const HEADER: usize = HEADER_LEN as usize;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MORE_FRAGMENTS: u16 = 1;
const FRAGMENT_OFFSET: u16 = 0xfff8;

/// Parses the IPv6 header at offset `at`, and all extension headers.
#[inline(always)]
pub(super) fn read<F: Frame>(frame: &F, at: usize, packet: &mut Packet) -> Result<Payload, Read> {
    let Some(header) = fixed(frame, at) else {
        return without_header(packet, Read::Malformed);
    };
    *packet = Packet {
        source: header.source.to_ne_bytes(),
        target: header.target.to_ne_bytes(),
        len: header.payload_len.saturating_add(HEADER_LEN),
        protocol: header.protocol,
        hop_limit: header.hop_limit,
        ..Packet::default()
    };
    // An IPv4-mapped address in an IPv6 header is forged (RFC 4942 2.2), and would be taken for an IPv4 host's.
    if is_v4(&packet.source) || is_v4(&packet.target) {
        return Err(Read::Malformed);
    }
    let payload = Payload {
        at: at + HEADER,
        end: at + HEADER + usize::from(header.payload_len),
        offset: 0,
    };
    walk(frame, payload, packet)
}

/// The fixed header.
struct Header {
    /// Bytes behind the fixed header.
    payload_len: u16,
    /// The protocol of the next header.
    protocol: u8,
    hop_limit: u8,
    // Numbers, in the machine's byte order: BPF copies arrays of bytes byte by byte.
    source: u128,
    target: u128,
}

/// Parses the fixed header itself.
#[inline(always)]
fn fixed<F: Frame>(frame: &F, at: usize) -> Option<Header> {
    let Aligned(header) = frame.load::<HEADER>(at)?;
    let [first, _, _, _, len_0, len_1, protocol, hop_limit, rest @ ..] = &header;
    let (source, target) = rest.split_first_chunk::<16>()?;
    (first >> 4 == 6).then_some(Header {
        payload_len: u16::from_be_bytes([*len_0, *len_1]),
        protocol: *protocol,
        hop_limit: *hop_limit,
        source: u128::from_ne_bytes(*source),
        target: u128::from_ne_bytes(*target.first_chunk()?),
    })
}

/// Walks the chain of extension headers to its end.
#[inline(always)]
fn walk<F: Frame>(frame: &F, mut payload: Payload, packet: &mut Packet) -> Result<Payload, Read> {
    let mut was_fragment = false;
    for position in 0..EXTENSIONS_MAX {
        let kind = packet.protocol;
        if !is_extension(kind) || packet.fragment == LATER {
            return Ok(payload);
        }
        // Each may occur once: the first only in front, the second where the packet was fragmented.
        if kind == HOP_BY_HOP && position != 0 || kind == FRAGMENT && was_fragment {
            return Err(Read::Malformed);
        }
        payload = step(frame, payload, packet)?;
        was_fragment |= kind == FRAGMENT;
    }
    if is_extension(packet.protocol) && packet.fragment != LATER {
        return Err(Read::Malformed);
    }
    Ok(payload)
}

/// Parses one extension header.
#[inline(always)]
fn step<F: Frame>(frame: &F, payload: Payload, packet: &mut Packet) -> Result<Payload, Read> {
    let Some(Aligned([next, len, b2, b3, id @ ..])) = frame.load::<8>(payload.at) else {
        return Err(Read::Malformed);
    };
    let kind = packet.protocol;
    packet.protocol = next;
    let size = match kind {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(len) + 2) * 4,
        _ => (usize::from(len) + 1) * 8,
    };
    // The third byte of a routing header is its type, the fourth the segments left.
    if kind == ROUTING && b3 != 0 {
        packet.routed = 1;
    }
    let mut rest = Payload {
        at: payload.at + size,
        ..payload
    };
    if rest.at > rest.end {
        return Err(Read::Malformed);
    }
    if kind == FRAGMENT {
        let place = u16::from_be_bytes([b2, b3]);
        packet.id = u32::from_be_bytes(id);
        rest.offset = usize::from(place & FRAGMENT_OFFSET);
        fragment::note(rest, place & MORE_FRAGMENTS != 0, packet)?;
    }
    Ok(rest)
}

#[inline(always)]
const fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | FRAGMENT) || is_fragmentable(protocol)
}

/// Whether it is an extension header that may follow the fragment header (RFC 8200 4.1).
#[inline(always)]
pub(super) const fn is_fragmentable(protocol: u8) -> bool {
    matches!(protocol, ROUTING | AUTHENTICATION | DESTINATION_OPTIONS)
}

/// Whether an address never crosses a network: this host in RFC 6890, `::1` and `::`.
#[inline(always)]
pub(super) const fn is_this_host(address: &[u8; 16]) -> bool {
    u128::from_be_bytes(*address) <= 1
}
