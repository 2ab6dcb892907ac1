//! The NDP proxy's messages (RFC 4861): parses Neighbor Solicitations and builds the advertisements for the node's pods.

use crate::checksum;
use crate::packet::{self, Aligned, Frame, ICMP, ICMPV6, L3, L4, Packet};

/// The length of an advertisement's frame: Ethernet, IPv6, the advertisement and its link-layer option.
pub const ADVERTISEMENT_LEN: usize = L4 + 32;

/// The IPv6 header's length.
const IP_LEN: u16 = 40;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const REDIRECT4: u8 = 5;
/// Version and length in words of an IPv4 header without options.
const V4_PLAIN: u8 = 0x45;
/// The length in bytes of an IPv4 header without options.
const V4_LEN: usize = 20;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const UNSPECIFIED: [u8; 16] = [0; 16];
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// A valid Neighbor Solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The soliciting node's address; unspecified: it checks `target` for duplicates (RFC 4862).
    pub source: [u8; 16],
    /// The soliciting node's link-layer address.
    pub mac: [u8; 6],
    /// The address that is solicited.
    pub target: [u8; 16],
}

/// Parses a packet as a solicitation; none if it is invalid by RFC 4861 (7.1.1).
///
/// A solicitation with more than eight bytes of options, or behind extension headers, is left to the kernel: nodes send one
/// option at most, and no such header.
#[inline(always)]
pub fn solicitation<F: Frame>(frame: &F, packet: &Packet) -> Option<Solicitation> {
    if packet.protocol != ICMPV6 || packet.hop_limit != 255 || usize::from(packet.l4) != L4 {
        return None;
    }
    // A group sends nothing (RFC 4291 2.7), nor does a loopback address outside its host (2.5.3).
    if packet.is_martian() && packet.source != [0; 16] {
        return None;
    }
    let len = packet.len.checked_sub(IP_LEN)?;
    let message = frame.load::<24>(L4)?.0;
    let mut sum = checksum::pseudo(&packet.source, &packet.target, len, ICMPV6);
    sum = checksum::add(sum, &message);
    let mac = frame.load::<6>(6)?.0;
    let option = match len {
        24 => None,
        32 => {
            let option = frame.load::<8>(L4 + 24)?.0;
            sum = checksum::add(sum, &option);
            Some(option)
        }
        _ => return None,
    };
    let [kind, code, ..] = message;
    let target = *message.last_chunk::<16>()?;
    if kind != SOLICITATION || code != 0 || checksum::finish(sum) != 0 || target[0] == 0xff {
        return None;
    }
    solicitor(&packet.source, &packet.target, mac, option).map(|mac| Solicitation {
        source: packet.source,
        mac,
        target,
    })
}

/// The soliciting node's link-layer address, if source, destination and option are consistent.
#[inline(always)]
fn solicitor(
    source: &[u8; 16],
    target: &[u8; 16],
    sender: [u8; 6],
    option: Option<[u8; 8]>,
) -> Option<[u8; 6]> {
    let detects_duplicates = *source == UNSPECIFIED;
    if detects_duplicates && !is_solicited_node(target) {
        return None;
    }
    match option {
        Some([_, len, ..]) if len != 1 => None,
        Some([SOURCE_LINK_LAYER, ..]) if detects_duplicates => None,
        Some([SOURCE_LINK_LAYER, _, mac @ ..]) => Some(mac),
        // No option, a nonce (RFC 7527), or an unknown option.
        _ => Some(sender),
    }
}

#[inline(always)]
fn is_solicited_node(address: &[u8; 16]) -> bool {
    matches!(
        address,
        [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, _, _, _]
    )
}

/// Whether an address is link-local (RFC 4291 2.5.6).
#[inline(always)]
pub const fn is_link_local(address: &[u8; 16]) -> bool {
    address[0] == 0xfe && address[1] & 0xc0 == 0x80
}

/// Whether a pod may send the ICMPv6 message at offset `at`: no router's message, and advertisements only of addresses that
/// `are_own`.
#[inline(always)]
pub fn pod_may_say<F: Frame>(frame: &F, at: usize, are_own: impl Fn(&[u8; 16]) -> bool) -> bool {
    let Some(Aligned([kind])) = frame.load::<1>(at) else {
        return false;
    };
    match kind {
        ROUTER_ADVERTISEMENT | REDIRECT => false,
        ADVERTISEMENT => frame
            .load::<16>(at + 8)
            .is_some_and(|Aligned(target)| is_link_local(&target) || are_own(&target)),
        _ => true,
    }
}

/// Whether the frame is an ICMP redirect (RFC 4861 4.5, RFC 792).
#[inline(always)]
pub fn is_redirect<F: Frame>(frame: &F) -> bool {
    let is = |at, value| {
        frame
            .load::<1>(at)
            .is_some_and(|Aligned([found])| found == value)
    };
    match frame.ethertype() {
        Some(packet::ETHERTYPE_IPV6) => is(L3 + 6, ICMPV6) && is(L4, REDIRECT),
        // The kernel's own redirects have no IP options.
        Some(packet::ETHERTYPE_IPV4) => {
            is(L3, V4_PLAIN) && is(L3 + 9, ICMP) && is(L3 + V4_LEN, REDIRECT4)
        }
        _ => false,
    }
}

/// Writes the advertisement, a whole frame, that `mac` has the target.
#[inline(always)]
pub fn advertise(solicitation: &Solicitation, mac: [u8; 6], frame: &mut [u8; ADVERTISEMENT_LEN]) {
    let (to, to_mac, flags) = if solicitation.source == UNSPECIFIED {
        (ALL_NODES, ALL_NODES_MAC, OVERRIDE)
    } else {
        (solicitation.source, solicitation.mac, SOLICITED | OVERRIDE)
    };
    let head = [ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    let option = [TARGET_LINK_LAYER, 1];
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&packet::ETHERTYPE_IPV6);
    frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    frame[22..38].copy_from_slice(&solicitation.target);
    frame[38..54].copy_from_slice(&to);
    frame[54..62].copy_from_slice(&head);
    frame[62..78].copy_from_slice(&solicitation.target);
    frame[78..80].copy_from_slice(&option);
    frame[80..].copy_from_slice(&mac);
    let mut sum = checksum::pseudo(&solicitation.target, &to, 32, ICMPV6);
    sum = checksum::add(sum, &head);
    sum = checksum::add(sum, &solicitation.target);
    sum = checksum::add(sum, &option);
    sum = checksum::add(sum, &mac);
    frame[56..58].copy_from_slice(&checksum::finish(sum).to_be_bytes());
}

#[cfg(test)]
mod tests;
