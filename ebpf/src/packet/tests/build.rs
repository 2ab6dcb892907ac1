//! Builds frames, one header at a time, from the RFCs' pictures and not from the reader's constants.

pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const AUTHENTICATION: u8 = 51;
pub(super) const DESTINATION: u8 = 60;

/// Offset and M bit (RFC 8200 4.5).
pub(super) const ATOMIC: u16 = 0;
pub(super) const FIRST_OF_MANY: u16 = 1;
pub(super) const LAST_OF_MANY: u16 = 1280;
/// Of the IPv6 fragments built here.
pub(super) const ID: u32 = 0xdead_beef;

pub(super) const SOURCE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(super) const TARGET: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

const PORTS: [u8; 4] = [0x9c, 0x40, 0, 80];

fn be(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap().to_be_bytes()
}

pub(super) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(be(payload.len()));
    frame.extend([next, 64]);
    frame.extend(SOURCE);
    frame.extend(TARGET);
    frame.extend(payload);
    frame
}

pub(super) fn ipv4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = 5 + u8::try_from(options.len() / 4).unwrap();
    let mut frame = [&[2; 12][..], &[0x08, 0x00, 0x40 | words, 0]].concat();
    frame.extend(be(20 + options.len() + payload.len()));
    frame.extend([0xbe, 0xef, 0, 0, 63, protocol, 0, 0]);
    frame.extend([192, 0, 2, 1, 198, 51, 100, 2]);
    frame.extend(options);
    frame.extend(payload);
    frame
}

/// `place`: flags and offset, in units of 8 bytes (RFC 791 3.1).
pub(super) fn ipv4_fragment(protocol: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = ipv4(protocol, &[], payload);
    frame[20..22].copy_from_slice(&place.to_be_bytes());
    frame
}

pub(super) fn fragment(next: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![next, 0];
    bytes.extend(place.to_be_bytes());
    bytes.extend(ID.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An extension header, `more` units longer than the shortest; a fragment header is an atomic one's.
pub(super) fn extension(kind: u8, next: u8, more: u8) -> Vec<u8> {
    let (len, unit, least) = match kind {
        FRAGMENT => return fragment(next, ATOMIC, &[]),
        AUTHENTICATION => (more + 1, 4, 12),
        _ => (more, 8, 8),
    };
    let mut bytes = vec![0; least + usize::from(more) * unit];
    (bytes[0], bytes[1]) = (next, len);
    bytes
}

/// A frame with the extension headers `kinds`.
pub(super) fn chain(kinds: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    let mut next = protocol;
    for &kind in kinds.iter().rev() {
        bytes = [extension(kind, next, 0), bytes].concat();
        next = kind;
    }
    ipv6(next, &bytes)
}

pub(super) fn tcp(flags: u8) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..4].copy_from_slice(&PORTS);
    (bytes[12], bytes[13]) = (5 << 4, flags);
    bytes
}

pub(super) fn udp(data: &[u8]) -> Vec<u8> {
    udp_of(8 + data.len(), data)
}

pub(super) fn udp_of(len: usize, data: &[u8]) -> Vec<u8> {
    [&PORTS[..], &be(len), &[0, 0], data].concat()
}

pub(super) fn sctp(chunk: u8) -> Vec<u8> {
    [&PORTS[..], &[0; 8], &[chunk, 0, 0, 4]].concat()
}

pub(super) fn icmp(kind: u8) -> Vec<u8> {
    vec![kind, 0, 0, 0, 0, 0, 0, 0]
}
