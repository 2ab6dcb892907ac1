//! The first packet of a connection, built for an explanation: complete, with correct checksums.

use std::net::{IpAddr, SocketAddr};

use dormouse_ebpf::checksum::crc32c;
use dormouse_ebpf::packet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ICMP, ICMPV6, L3, Packet, Read, SCTP, TCP, UDP, read,
};

use dormouse_agent_datapath::octets;

/// Hop limit (TTL) of the packet, as hosts set it.
const HOPS: u8 = 64;

/// Source, destination and protocol of a connection's first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Address and port of the client.
    pub source: SocketAddr,
    /// Address and port that the client connects to; of the same family.
    pub target: SocketAddr,
    /// IP protocol number: TCP, UDP, SCTP, or that of ICMP in the addresses' family, without ports.
    pub protocol: u8,
}

impl Opening {
    /// Whether it is an echo request of ICMP, which has no ports.
    pub fn is_echo(&self) -> bool {
        matches!(self.protocol, ICMP | ICMPV6)
    }

    /// The frame: a TCP SYN, an SCTP INIT, a UDP datagram, or an ICMP echo request.
    pub fn frame(&self) -> Vec<u8> {
        let mut payload = match self.protocol {
            TCP => tcp(),
            SCTP => sctp(),
            ICMP => echo(8),
            ICMPV6 => echo(128),
            _ => udp(),
        };
        if !self.is_echo() {
            payload[..2].copy_from_slice(&self.source.port().to_be_bytes());
            payload[2..4].copy_from_slice(&self.target.port().to_be_bytes());
        }
        match self.protocol {
            ICMP => {
                let sum = !fold(sum(&payload));
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            SCTP => {
                let crc = crc32c(payload.iter().copied());
                payload[8..12].copy_from_slice(&crc.to_le_bytes());
            }
            protocol => {
                let at = match protocol {
                    ICMPV6 => 2,
                    UDP => 6,
                    _ => 16,
                };
                let sum = !fold(self.pseudo_header(payload.len()) + sum(&payload));
                // In UDP, a checksum of zero means "none": it is sent as all ones.
                let sum = if protocol == UDP && sum == 0 {
                    0xffff
                } else {
                    sum
                };
                payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        let mut frame = self.headers(payload.len());
        frame.extend(payload);
        frame
    }

    fn pseudo_header(&self, len: usize) -> u64 {
        let ends = [octets(self.source.ip()), octets(self.target.ip())];
        // The IPv4-mapped prefix is not part of an IPv4 pseudo-header.
        let ends = ends.map(|end| {
            if self.source.is_ipv4() {
                sum(&end[12..])
            } else {
                sum(&end)
            }
        });
        ends.iter().sum::<u64>() + u64::from(self.protocol) + len as u64
    }

    fn headers(&self, len: usize) -> Vec<u8> {
        // The link-layer addresses do not matter here, but must not be multicast.
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let len16 = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        if let (IpAddr::V4(source), IpAddr::V4(target)) = (self.source.ip(), self.target.ip()) {
            frame.extend(ETHERTYPE_IPV4);
            let [high, low] = len16(20 + len);
            let mut ip = vec![0x45, 0, high, low, 0, 1, 0x40, 0, HOPS, self.protocol, 0, 0];
            ip.extend(source.octets());
            ip.extend(target.octets());
            let check = !fold(sum(&ip));
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            frame.extend(ip);
        } else {
            frame.extend(ETHERTYPE_IPV6);
            let [high, low] = len16(len);
            frame.extend([0x60, 0, 0, 0, high, low, self.protocol, HOPS]);
            frame.extend(octets(self.source.ip()));
            frame.extend(octets(self.target.ip()));
        }
        frame
    }
}

/// A TCP SYN, without ports and checksum.
fn tcp() -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[7] = 1;
    segment[12] = 0x50;
    segment[13] = 0x02;
    segment[14..16].copy_from_slice(&[0xff, 0xff]);
    segment
}

/// An empty UDP datagram.
fn udp() -> Vec<u8> {
    vec![0, 0, 0, 0, 0, 8, 0, 0]
}

/// An SCTP packet with one INIT chunk (RFC 9260 3.3.2).
fn sctp() -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([1, 0, 0, 20]);
    packet.extend([0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    packet
}

/// An echo request (RFC 792, RFC 4443 4.1), without checksum.
fn echo(kind: u8) -> Vec<u8> {
    vec![kind, 0, 0, 0, 0, 1, 0, 1]
}

fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2);
    let words = pairs.map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([pair[0], low]))
    });
    words.sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Source and destination of a frame that a program returned; none if it is no TCP, UDP or SCTP packet and no ICMP message.
pub fn ends(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let mut packet = Packet::default();
    if frame.len() <= L3 {
        return None;
    }
    match read(&frame, &mut packet) {
        Read::Transport => {}
        Read::Other => return icmp_ends(frame),
        _ => return None,
    }
    let end = |address: [u8; 16], port| SocketAddr::new(IpAddr::from(address).to_canonical(), port);
    Some((
        end(packet.source, packet.source_port),
        end(packet.target, packet.target_port),
    ))
}

/// Source and destination of an ICMP message without IP options or extension headers.
fn icmp_ends(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let ip = frame.get(L3..)?;
    let (source, target): (IpAddr, IpAddr) = match ip.first()? >> 4 {
        4 if *ip.get(9)? == ICMP => {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
            (at(12)?, at(16)?)
        }
        6 if *ip.get(6)? == ICMPV6 => {
            let at = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
            (at(8)?, at(24)?)
        }
        _ => return None,
    };
    Some((SocketAddr::new(source, 0), SocketAddr::new(target, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(source: &str, target: &str, protocol: u8) -> Opening {
        Opening {
            source: source.parse().unwrap(),
            target: target.parse().unwrap(),
            protocol,
        }
    }

    #[test]
    fn every_built_packet_opens_a_connection() {
        for (source, target) in [
            ("[fd00::1]:4000", "[fd00::2]:80"),
            ("10.0.0.1:4000", "10.0.0.2:80"),
        ] {
            for protocol in [TCP, UDP, SCTP] {
                let opening = opening(source, target, protocol);
                let frame = opening.frame();
                let mut packet = Packet::default();
                assert_eq!(read(&frame.as_slice(), &mut packet), Read::Transport);
                assert!(packet.begins(), "{opening:?}");
                assert_eq!(ends(&frame), Some((opening.source, opening.target)));
            }
        }
    }

    #[test]
    fn an_echo_request_has_addresses_and_a_correct_checksum_but_no_ports() {
        for (source, target, protocol, header) in [
            ("[fd00::1]:0", "[fd00::2]:0", ICMPV6, 40),
            ("10.0.0.1:0", "10.0.0.2:0", ICMP, 20),
        ] {
            let opening = opening(source, target, protocol);
            let frame = opening.frame();
            assert_eq!(ends(&frame), Some((opening.source, opening.target)));
            let payload = &frame[L3 + header..];
            let pseudo = match protocol {
                ICMPV6 => opening.pseudo_header(payload.len()),
                _ => 0,
            };
            assert_eq!(fold(pseudo + sum(payload)), 0xffff);
        }
    }

    #[test]
    fn checksums_are_correct() {
        // The sum over a segment with a correct checksum is all ones.
        for protocol in [TCP, UDP] {
            let opening = opening("[fd00::1]:4000", "[fd00::2]:80", protocol);
            let frame = opening.frame();
            let payload = &frame[54..];
            assert_eq!(
                fold(opening.pseudo_header(payload.len()) + sum(payload)),
                0xffff
            );
        }
        let v4 = opening("10.0.0.1:4000", "10.0.0.2:80", TCP);
        let frame = v4.frame();
        assert_eq!(fold(sum(&frame[14..34])), 0xffff);
        assert_eq!(fold(v4.pseudo_header(20) + sum(&frame[34..])), 0xffff);
        assert_eq!(
            crc32c(b"123456789".iter().copied()),
            0xe306_9283,
            "the check value of CRC32c"
        );
    }
}
