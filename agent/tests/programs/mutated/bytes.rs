//! A frame read without the code under test.

use std::net::Ipv6Addr;

use dormouse_rig::frame::ones_sum;

pub(super) const ETHERNET: usize = 14;
/// Where a packet's payload begins, without options and extension headers.
pub(super) const V4: usize = 34;
pub(super) const V6: usize = 54;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// An IP packet in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) v4: bool,
    /// IPv4 addresses are mapped.
    pub(super) source: Ipv6Addr,
    pub(super) target: Ipv6Addr,
    pub(super) hops: u8,
    /// The protocol after the extension headers.
    pub(super) protocol: u8,
    /// Where its header begins, and where the packet ends.
    pub(super) l4: usize,
    pub(super) end: usize,
    /// Not the whole packet.
    pub(super) fragment: bool,
    /// No protocol's header follows the extension headers: a length is wrong, or it is in another fragment.
    pub(super) headless: bool,
}

pub(super) fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// Whether the frame's type is that of an IP packet.
pub(super) fn is_ip(frame: &[u8]) -> bool {
    frame.len() >= ETHERNET && matches!(word(frame, 12), 0x0800 | 0x86dd)
}

/// The frame's packet, if it has a whole one.
pub(super) fn view(frame: &[u8]) -> Option<View> {
    match is_ip(frame).then(|| word(frame, 12))? {
        0x0800 => view4(frame),
        _ => view6(frame),
    }
}

fn view4(frame: &[u8]) -> Option<View> {
    let first = *frame.get(ETHERNET)?;
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 || frame.len() < ETHERNET + header {
        return None;
    }
    let length = usize::from(word(frame, 16));
    let address = |at: usize| {
        let octets: [u8; 4] = frame[at..at + 4].try_into().unwrap();
        std::net::Ipv4Addr::from(octets).to_ipv6_mapped()
    };
    (length >= header && ETHERNET + length <= frame.len()).then(|| View {
        v4: true,
        source: address(26),
        target: address(30),
        hops: frame[22],
        protocol: frame[23],
        l4: ETHERNET + header,
        end: ETHERNET + length,
        fragment: word(frame, 20) & 0x3fff != 0,
        headless: word(frame, 20) & 0x1fff != 0,
    })
}

fn view6(frame: &[u8]) -> Option<View> {
    if frame.len() < V6 || frame[ETHERNET] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let end = V6 + usize::from(word(frame, 18));
    let mut view = View {
        v4: false,
        source: address(22),
        target: address(38),
        hops: frame[21],
        protocol: frame[20],
        l4: V6,
        end,
        fragment: false,
        headless: false,
    };
    if end > frame.len() {
        view.headless = true;
        view.end = frame.len();
        view.l4 = view.end;
        return Some(view);
    }
    while let Some(length) = extension(&frame[..end], &mut view) {
        view.protocol = frame[view.l4];
        view.l4 += length;
        if view.headless || view.l4 > end {
            view.headless = true;
            view.l4 = end;
            break;
        }
    }
    Some(view)
}

/// The length of the extension header at `view.l4`, if it is one.
fn extension(packet: &[u8], view: &mut View) -> Option<usize> {
    let header = packet.get(view.l4..)?;
    let is_extension =
        [FRAGMENT, AUTHENTICATION].contains(&view.protocol) || EXTENSIONS.contains(&view.protocol);
    if is_extension && header.len() < 8 {
        view.headless = true;
    }
    if !is_extension || header.len() < 8 {
        return None;
    }
    let more = usize::from(header[1]);
    match view.protocol {
        FRAGMENT => {
            view.fragment |= word(header, 2) & 0xfff9 != 0;
            view.headless = word(header, 2) & 0xfff8 != 0;
            Some(8)
        }
        AUTHENTICATION => Some((more + 2) * 4),
        _ => Some((more + 1) * 8),
    }
}

/// What is wrong with the packet's transport checksum: the same before and after a translation that is right. None if it has no
/// checksum or is not whole.
pub(super) fn residue(frame: &[u8], view: &View) -> Option<u32> {
    let payload = frame.get(view.l4..view.end)?;
    if view.fragment || view.headless {
        return None;
    }
    let (at, least) = match view.protocol {
        TCP => (16, 20),
        UDP => (6, 8),
        ICMP | ICMPV6 => (2, 8),
        SCTP => return (payload.len() >= 12).then(|| crc_residue(payload)),
        _ => return None,
    };
    if payload.len() < least || view.protocol == UDP && word(payload, at) == 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(40 + payload.len());
    if view.protocol != ICMP {
        let skipped = if view.v4 { 12 } else { 0 };
        bytes.extend(&view.source.octets()[skipped..]);
        bytes.extend(&view.target.octets()[skipped..]);
        bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend([0, 0, 0, view.protocol]);
    }
    bytes.extend(payload);
    Some(u32::from(ones_sum(&bytes)) % 0xffff)
}

/// The same of the IPv4 header.
pub(super) fn header_residue(frame: &[u8], view: &View) -> Option<u32> {
    let header = view.v4.then(|| &frame[ETHERNET..view.l4])?;
    Some(u32::from(ones_sum(header)) % 0xffff)
}

/// SCTP's checksum (RFC 9260 6.8) against the one that the packet should have.
fn crc_residue(packet: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for (at, byte) in packet.iter().enumerate() {
        crc ^= u32::from(if (8..12).contains(&at) { 0 } else { *byte });
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc ^ u32::from_le_bytes(packet[8..12].try_into().unwrap())
}
