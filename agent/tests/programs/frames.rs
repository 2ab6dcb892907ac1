//! Frames written down by hand, and the checksum computed in full, without the code under test.

use std::net::Ipv6Addr;

pub(crate) const FIN: u8 = 0x11;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const SYN_ACK: u8 = 0x12;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const RST: u8 = 0x04;

/// An address with a port.
pub(crate) type End = (Ipv6Addr, u16);

/// A TCP segment in a frame.
pub(crate) fn tcp(source: End, target: End, flags: u8) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.1.to_be_bytes());
    segment.extend(target.1.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(b"payload of an odd length.");
    seal(frame(6, 64, source.0, target.0, &segment), 16)
}

/// A neighbor solicitation in a frame.
pub(crate) fn solicitation(
    source: Ipv6Addr,
    to: Ipv6Addr,
    target: Ipv6Addr,
    options: &[u8],
) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend(options);
    seal(frame(58, 255, source, to, &message), 2)
}

/// An IPv6 packet in a frame.
pub(crate) fn frame(
    protocol: u8,
    hop_limit: u8,
    source: Ipv6Addr,
    target: Ipv6Addr,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0,
    ];
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([protocol, hop_limit]);
    frame.extend(source.octets());
    frame.extend(target.octets());
    frame.extend(payload);
    frame
}

/// Fills in the checksum, which lies `at` bytes into the payload.
pub(crate) fn seal(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    frame[54 + at..56 + at].fill(0);
    let sum = !sum(&frame);
    frame[54 + at..56 + at].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The ones' complement sum over pseudo-header and payload: all ones when the checksum is right.
pub(crate) fn sum(frame: &[u8]) -> u16 {
    let payload = &frame[54..];
    let mut bytes = frame[22..54].to_vec();
    bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([0, 0, 0, frame[20]]);
    bytes.extend(payload);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    ones_sum(&bytes)
}

/// The ones' complement sum of whole words (RFC 1071).
pub(crate) fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Both ends of a frame.
pub(crate) fn ends(frame: &[u8]) -> (End, End) {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    ((address(22), port(54)), (address(38), port(56)))
}
