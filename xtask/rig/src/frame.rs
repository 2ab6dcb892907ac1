//! Frames written down by hand, and the internet checksum computed in full, without the code under test.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A link-layer address.
pub type Mac = [u8; 6];
/// An address with a port.
pub type End = (Ipv6Addr, u16);

/// TCP's flags, with ACK where a real segment has it.
pub const FIN: u8 = 0x11;
/// The first segment of a connection.
pub const SYN: u8 = 0x02;
/// Its answer.
pub const SYN_ACK: u8 = 0x12;
/// A segment of an established connection.
pub const ACK: u8 = 0x10;
/// The last segment of what an application sent in one go.
pub const PSH: u8 = 0x18;
/// A reset.
pub const RST: u8 = 0x04;

/// The protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// Bytes of Ethernet's and IPv6's headers.
pub const HEADERS: usize = 54;
/// The link-layer addresses of frames: of no interface, and of the uplink of a [node alone](crate::Node).
pub const MACS: (Mac, Mac) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]);

/// Reads a link-layer address.
pub fn mac(text: &str) -> Mac {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<u8>>().try_into().unwrap()
}

/// An IPv6 packet in a frame: `macs` are those of sender and receiver.
pub fn ipv6(
    macs: (Mac, Mac),
    (protocol, hop_limit): (u8, u8),
    (source, target): (Ipv6Addr, Ipv6Addr),
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = [&macs.1[..], &macs.0, &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend([protocol, hop_limit]);
    frame.extend(source.octets());
    frame.extend(target.octets());
    frame.extend(payload);
    frame
}

/// A TCP segment with an odd number of bytes in a frame. Each has the first sequence number, and acknowledges the first one.
pub fn tcp(source: End, target: End, flags: u8) -> Vec<u8> {
    let acknowledged = if flags & ACK == 0 { 0 } else { 2 };
    tcp_acknowledging(source, target, flags, acknowledged)
}

/// The same with this acknowledgement number.
pub fn tcp_acknowledging(source: End, target: End, flags: u8, acknowledged: u32) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.1.to_be_bytes());
    segment.extend(target.1.to_be_bytes());
    segment.extend([0, 0, 0, 1]);
    segment.extend(acknowledged.to_be_bytes());
    segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(b"payload of an odd length.");
    seal(ipv6(MACS, (TCP, 64), (source.0, target.0), &segment), 16)
}

/// A neighbor solicitation in a frame.
pub fn solicitation(
    macs: (Mac, Mac),
    (source, to): (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    options: &[u8],
) -> Vec<u8> {
    let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), options].concat();
    seal(ipv6(macs, (ICMPV6, 255), (source, to), &message), 2)
}

/// Puts an extension header of this kind before a packet's payload; the header's first byte is filled in.
pub fn behind(kind: u8, header: &[u8], frame: &[u8]) -> Vec<u8> {
    let (headers, payload) = frame.split_at(HEADERS);
    let mut behind = [headers, header, payload].concat();
    behind[HEADERS] = std::mem::replace(&mut behind[20], kind);
    let len = u16::try_from(header.len() + payload.len()).unwrap();
    behind[18..20].copy_from_slice(&len.to_be_bytes());
    behind
}

/// An ARP message (RFC 826) of Ethernet and IPv4, in a frame to `to`.
pub fn arp(operation: u8, to: Mac, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = [&to[..], &sender.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    for (mac, address) in [sender, target] {
        frame.extend(mac);
        frame.extend(address.octets());
    }
    frame
}

/// Fills in the checksum, which lies `at` bytes into the payload.
pub fn seal(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    frame[HEADERS + at..HEADERS + at + 2].fill(0);
    let sum = !sum(&frame);
    frame[HEADERS + at..HEADERS + at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The ones' complement sum over pseudo-header and payload of an IPv6 frame: all ones when the checksum is right.
pub fn sum(frame: &[u8]) -> u16 {
    let payload = &frame[HEADERS..];
    let mut bytes = frame[22..HEADERS].to_vec();
    bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend([0, 0, 0, frame[20]]);
    bytes.extend(payload);
    ones_sum(&bytes)
}

/// The ones' complement sum of 16-bit words (RFC 1071); an odd last byte is the high one of its word.
pub fn ones_sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Source and target of an IPv6 frame with ports.
pub fn ends(frame: &[u8]) -> (End, End) {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    ((address(22), port(54)), (address(38), port(56)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_sum(&example), 0xddf2, "RFC 1071 3");
        let frame = tcp((Ipv6Addr::LOCALHOST, 1), (Ipv6Addr::UNSPECIFIED, 2), SYN);
        assert_eq!(sum(&frame), 0xffff);
    }
}
