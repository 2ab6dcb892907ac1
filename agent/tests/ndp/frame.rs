//! Frames of neighbour discovery (RFC 4861), written and read by hand.

use std::net::Ipv6Addr;

use dormouse_rig::Tap;
use dormouse_rig::frame::{HEADERS, ICMPV6, Mac, ipv6, seal, solicitation};

pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group in which an address is asked for.
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

fn link_layer(to: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = to.octets();
    [0x33, 0x33, a, b, c, d]
}

/// A message in its headers, checksum filled in; `macs` are those of sender and receiver.
fn message(macs: (Mac, Mac), from: Ipv6Addr, to: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    seal(ipv6(macs, (ICMPV6, 255), (from, to), body), 2)
}

/// A neighbour that solicits.
pub(crate) struct Asker {
    pub(crate) mac: Mac,
    pub(crate) address: Ipv6Addr,
}

impl Asker {
    fn solicitation(&self, macs: (Mac, Mac), to: (Ipv6Addr, Ipv6Addr), option: &[u8]) -> Vec<u8> {
        solicitation(macs, (self.address, to.0), to.1, option)
    }

    /// Multicasts a solicitation, as a host without an entry for the address does.
    pub(crate) fn asks(&self, target: Ipv6Addr) -> Vec<u8> {
        let group = solicited_node(target);
        let option = [&[1, 1][..], &self.mac].concat();
        self.solicitation((self.mac, link_layer(group)), (group, target), &option)
    }

    /// Unicasts a solicitation, without an option for its own link-layer address (RFC 4861, 7.2.2).
    pub(crate) fn probes(&self, target: Ipv6Addr, at: Mac) -> Vec<u8> {
        self.solicitation((self.mac, at), (target, target), &[])
    }

    /// Detects a duplicate of the address (RFC 4862).
    pub(crate) fn detects(&self, target: Ipv6Addr) -> Vec<u8> {
        let unspecified = Asker {
            mac: self.mac,
            address: Ipv6Addr::UNSPECIFIED,
        };
        let group = solicited_node(target);
        unspecified.solicitation((self.mac, link_layer(group)), (group, target), &[])
    }

    /// Advertises itself as a router for `lifetime` seconds.
    pub(crate) fn advertises_itself(&self, lifetime: u16) -> Vec<u8> {
        let [high, low] = lifetime.to_be_bytes();
        let body = [134, 0, 0, 0, 64, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0];
        let macs = (self.mac, link_layer(ALL_NODES));
        message(macs, self.address, ALL_NODES, &body)
    }
}

/// A neighbour advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) source_mac: Mac,
    pub(crate) to_mac: Mac,
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
    pub(crate) is_solicited: bool,
    pub(crate) overrides: bool,
    pub(crate) is_router: bool,
    /// The target link-layer address option.
    pub(crate) target_mac: Mac,
}

fn array<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at + N)?.try_into().ok()
}

/// Reads one; the checksum must be right.
pub(crate) fn advertisement(frame: &[u8]) -> Option<Advertisement> {
    if frame.len() < 86 || frame[12..14] != [0x86, 0xdd] || frame[20] != ICMPV6 {
        return None;
    }
    if frame[HEADERS] != 136 {
        return None;
    }
    let (to_mac, source_mac) = (array(frame, 0)?, array(frame, 6)?);
    let from = Ipv6Addr::from(array::<16>(frame, 22)?);
    let to = Ipv6Addr::from(array::<16>(frame, 38)?);
    assert_eq!(frame[21], 255, "hop limit");
    assert_eq!(frame[78..80], [2, 1], "a target link-layer address");
    let mut unsigned = frame[HEADERS..86].to_vec();
    unsigned[2..4].fill(0);
    let signed = message((source_mac, to_mac), from, to, &unsigned);
    assert_eq!(signed[HEADERS..], frame[HEADERS..86], "checksum");
    Some(Advertisement {
        source_mac,
        to_mac,
        from,
        to,
        target: Ipv6Addr::from(array::<16>(frame, 62)?),
        is_router: frame[58] & 0x80 != 0,
        is_solicited: frame[58] & 0x40 != 0,
        overrides: frame[58] & 0x20 != 0,
        target_mac: array(frame, 80)?,
    })
}

/// The address that a solicitation asks for.
pub(crate) fn solicited(frame: &[u8]) -> Option<Ipv6Addr> {
    let is_one = frame.len() >= 78 && frame[20] == ICMPV6 && frame[HEADERS] == 135;
    is_one.then(|| array::<16>(frame, 62).map(Ipv6Addr::from))?
}

/// Whether the frame is a router advertisement.
pub(crate) fn is_router(frame: &[u8]) -> bool {
    frame.len() > HEADERS && frame[20] == ICMPV6 && frame[HEADERS] == 134
}

/// Whether a frame is an ICMPv6 redirect.
pub(crate) fn redirect(frame: &[u8]) -> bool {
    frame.len() > HEADERS && frame[20] == ICMPV6 && frame[HEADERS] == 137
}

/// The code of a destination unreachable message.
pub(crate) fn unreachable(frame: &[u8]) -> Option<u8> {
    let is_one = frame.len() > HEADERS + 1 && frame[20] == ICMPV6 && frame[HEADERS] == 1;
    is_one.then(|| frame[HEADERS + 1])
}

/// An IPv6 packet's link-layer source and its destination address.
pub(crate) fn ends(frame: &[u8]) -> Option<(Mac, Ipv6Addr)> {
    let is_ipv6 = frame.get(12..14) == Some(&[0x86, 0xdd]);
    is_ipv6.then(|| Some((array(frame, 6)?, Ipv6Addr::from(array::<16>(frame, 38)?))))?
}

/// What a tap captures of neighbour discovery.
pub(crate) trait Answers {
    /// The next solicited advertisement.
    fn answer(&self) -> Advertisement;
}

impl Answers for Tap {
    fn answer(&self) -> Advertisement {
        self.until("an answer", |frame| {
            advertisement(frame).filter(|seen| seen.is_solicited)
        })
    }
}
