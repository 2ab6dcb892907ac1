//! Frames of three protocols in two families, written down byte by byte without the code under test: every checksum is
//! computed in full, so a frame is right only if it is the same to the last bit.

use std::net::{IpAddr, SocketAddr};

use dormouse_agent_services::Protocol;

const L3: usize = 14;
const HOPS: u8 = 64;
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// What travels: the same content always, so that its ends and its hops say all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parcel {
    pub(crate) source: SocketAddr,
    pub(crate) target: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Whether it opens a connection (SYN, INIT); always false for UDP.
    pub(crate) opens: bool,
    pub(crate) hops: u8,
}

impl Parcel {
    /// The first packet of a connection.
    pub(crate) fn first(source: SocketAddr, target: SocketAddr, protocol: Protocol) -> Self {
        Self {
            source,
            target,
            protocol,
            opens: true,
            hops: HOPS,
        }
    }

    /// A later packet of the same connection.
    pub(crate) fn later(self) -> Self {
        Self {
            opens: false,
            ..self
        }
    }

    /// The same with so many hops left.
    pub(crate) fn at(self, hops: u8) -> Self {
        Self { hops, ..self }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let payload = self.sealed();
        let number = number(self.protocol);
        packet(
            (self.source.ip(), self.target.ip()),
            number,
            self.hops,
            &payload,
        )
    }

    /// The parcel of this content that the frame is, if it is one.
    pub(crate) fn read(&self, frame: &[u8]) -> Option<Self> {
        let v4 = self.source.is_ipv4();
        let ends = ends(frame, v4)?;
        let l4 = L3 + if v4 { 20 } else { 40 };
        let port = |at: usize| Some(u16::from_be_bytes(*frame.get(l4 + at..)?.first_chunk()?));
        let parcel = Self {
            source: SocketAddr::new(ends.0, port(0)?),
            target: SocketAddr::new(ends.1, port(2)?),
            hops: *frame.get(if v4 { 22 } else { 21 })?,
            ..*self
        };
        (parcel.frame() == frame).then_some(parcel)
    }

    fn sealed(&self) -> Vec<u8> {
        let mut bytes = self.source.port().to_be_bytes().to_vec();
        bytes.extend(self.target.port().to_be_bytes());
        let checksum = match self.protocol {
            Protocol::Tcp => {
                let flags = if self.opens { 0x02 } else { 0x10 };
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
                16
            }
            Protocol::Udp => {
                bytes.extend([0, 8 + 9, 0, 0]);
                6
            }
            Protocol::Sctp => return self.sealed_sctp(bytes),
        };
        bytes.extend(b"odd bytes");
        let ends = (self.source.ip(), self.target.ip());
        let sum = match internet(&bytes, pseudo(ends, number(self.protocol), bytes.len())) {
            // RFC 768: a checksum of zero is sent as all ones.
            0 if self.protocol == Protocol::Udp => 0xffff,
            sum => sum,
        };
        bytes[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// A chunk INIT, or one of DATA, both of 20 bytes.
    fn sealed_sctp(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend([0, 0, 0, 7, 0, 0, 0, 0]);
        bytes.extend([u8::from(self.opens), 3 * u8::from(!self.opens), 0, 20]);
        bytes.extend([0, 0, 0, 9, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 5]);
        let crc = crc32c(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Checks that `answer` is a valid port-unreachable error for `sent`; the error names the difference.
pub(crate) fn is_refusal(sent: &[u8], answer: &[u8]) -> Result<(), &'static str> {
    let v4 = sent[12] == 0x08;
    let (protocol, kind) = if v4 { (ICMP, [3, 3]) } else { (ICMPV6, [1, 4]) };
    let (ends, icmp) = answered(sent, answer, protocol)?;
    let pseudo = if v4 {
        0
    } else {
        pseudo(ends, ICMPV6, icmp.len())
    };
    check(
        icmp[..2] == kind && icmp[4..8] == [0; 4],
        "is no port unreachable",
    )?;
    check(icmp[8..] == sent[L3..], "quotes something else")?;
    check(internet(icmp, pseudo) == 0, "has a wrong checksum")
}

/// Whether `answer` breaks the TCP connection off that `sent` belongs to, in a way that its sender believes (RFC 9293
/// 3.10.7.1).
pub(crate) fn is_reset(parcel: &Parcel, sent: &[u8], answer: &[u8]) -> bool {
    let Ok((ends, segment)) = answered(sent, answer, number(Protocol::Tcp)) else {
        return false;
    };
    let ports = [parcel.target.port(), parcel.source.port()]
        .map(u16::to_be_bytes)
        .concat();
    // The segment took 9 numbers from 1 on, and one for the SYN; without ACK it says none by which to answer.
    let rest: &[u8] = if parcel.opens {
        &[0, 0, 0, 0, 0, 0, 0, 11, 0x50, 0x14]
    } else {
        &[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x04]
    };
    parcel.protocol == Protocol::Tcp
        && segment.len() == 20
        && segment[..4] == ports
        && segment[4..14] == *rest
        && internet(segment, pseudo(ends, number(Protocol::Tcp), 20)) == 0
}

/// Both addresses and the payload of a reply to a frame's sender; the error names a wrong header.
fn answered<'a>(
    sent: &[u8],
    answer: &'a [u8],
    protocol: u8,
) -> Result<((IpAddr, IpAddr), &'a [u8]), &'static str> {
    let v4 = sent[12] == 0x08;
    let header = if v4 { 20 } else { 40 };
    let back = [&sent[6..12], &sent[..6], &sent[12..14]].concat();
    check(answer.len() > L3 + header + 8, "is too short")?;
    check(answer[..L3] == back, "does not go back on the link")?;
    let (source, target) = ends(sent, v4).ok_or("answers what has no ends")?;
    let turned = ends(answer, v4) == Some((target, source));
    check(turned, "does not go from the target to the source")?;
    let (ip, payload) = answer[L3..].split_at(header);
    if v4 {
        let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        check(
            ip[0] == 0x45 && len == ip.len() + payload.len(),
            "lies about its length",
        )?;
        check(
            ip[6] & 0xbf == 0 && ip[7] == 0 && ip[9] == protocol,
            "has a wrong header",
        )?;
        check(internet(ip, 0) == 0, "has a wrong header checksum")?;
    } else {
        let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        check(len == payload.len(), "lies about its length")?;
        check(
            ip[..4] == [0x60, 0, 0, 0] && ip[6] == protocol,
            "has a wrong header",
        )?;
    }
    Ok(((target, source), payload))
}

fn check(right: bool, wrong: &'static str) -> Result<(), &'static str> {
    if right { Ok(()) } else { Err(wrong) }
}

/// Whether the frame is an ICMP or ICMPv6 message.
pub(crate) fn is_icmp(frame: &[u8]) -> bool {
    match frame[12..14] {
        [0x08, 0] => frame[23] == ICMP,
        _ => frame[20] == ICMPV6,
    }
}

/// IP's number of a protocol.
pub(crate) fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

fn ends(frame: &[u8], v4: bool) -> Option<(IpAddr, IpAddr)> {
    let v4_at = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<4>()?));
    let v6_at = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<16>()?));
    match (v4, *frame.get(12..)?.first_chunk()?) {
        (true, [0x08, 0x00]) => Some((v4_at(26)?, v4_at(30)?)),
        (false, [0x86, 0xdd]) => Some((v6_at(22)?, v6_at(38)?)),
        _ => None,
    }
}

fn packet(ends: (IpAddr, IpAddr), protocol: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    let short = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
    if let (IpAddr::V4(source), IpAddr::V4(target)) = ends {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(short(20 + payload.len()));
        frame.extend([0x12, 0x34, 0x40, 0, hops, protocol, 0, 0]);
        frame.extend(source.octets());
        frame.extend(target.octets());
        let sum = internet(&frame[L3..], 0);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(short(payload.len()));
        frame.extend([protocol, hops]);
        frame.extend([octets(ends.0), octets(ends.1)].concat());
    }
    frame.extend(payload);
    frame
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// What the pseudo header adds to a sum.
fn pseudo(ends: (IpAddr, IpAddr), protocol: u8, len: usize) -> u32 {
    let bytes = [octets(ends.0), octets(ends.1)].concat();
    words(&bytes) + u32::from(protocol) + u32::try_from(len).unwrap()
}

/// The internet checksum (RFC 1071); over what holds its own, it is zero.
fn internet(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start + words(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn words(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    bytes.chunks(2).map(word).sum()
}

/// SCTP's checksum (RFC 9260 appendix A), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), shift);
    !bytes.iter().fold(!0, add)
}

#[test]
fn checksums_are_those_of_the_standards() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(internet(&example, 0), !0xddf2, "RFC 1071 3");
}
