//! Neighbour discovery (RFC 4861): parses Neighbor Solicitations and builds the advertisements that answer them, for the
//! node's pods on the uplink and for the gateway on a pod's link.

use crate::checksum;
use crate::packet::{self, Aligned, Frame, ICMP, ICMPV6, L3, L4, Packet};

/// The length of an advertisement's frame: Ethernet, IPv6, the advertisement and its link-layer option.
pub const ADVERTISEMENT_LEN: usize = L4 + 32;

/// The IPv6 header's length.
const IP_LEN: u16 = 40;
/// The length of a solicitation without options.
const SOLICITATION_LEN: u16 = 24;
/// Options are counted in units of eight bytes.
const UNIT: u16 = 8;
/// The most units of a solicitation's options.
const UNITS_MAX: u16 = 32;
pub(crate) const ROUTER_ADVERTISEMENT: u8 = 134;
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
pub(crate) const REDIRECT: u8 = 137;
const REDIRECT4: u8 = 5;
/// Version and length in words of an IPv4 header without options.
const V4_PLAIN: u8 = 0x45;
/// The length in bytes of an IPv4 header without options.
const V4_LEN: usize = 20;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const UNSPECIFIED: [u8; 16] = [0; 16];
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// A valid Neighbor Solicitation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Solicitation {
    /// The soliciting node's address; unspecified: it checks `target` for duplicates (RFC 4862).
    pub source: [u8; 16],
    /// The soliciting node's link-layer address.
    pub mac: [u8; 6],
    /// The address that is solicited.
    pub target: [u8; 16],
}

/// The node that owns a solicited address. Passed in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor<'a> {
    /// Its link-layer address.
    pub mac: &'a [u8; 6],
    /// It forwards packets.
    pub is_router: bool,
}

/// Parses a packet as a solicitation; false if it is invalid by RFC 4861 (7.1.1). Unknown options are skipped (9).
///
/// A solicitation behind extension headers, or with more than 256 bytes of options, is left to the kernel: nodes send no such
/// header, and one or two options of eight bytes.
// Written in place, and the options apart: together they do not fit on a program's stack.
#[inline(always)]
pub fn solicitation<F: Frame>(frame: &F, packet: &Packet, found: &mut Solicitation) -> bool {
    if packet.protocol != ICMPV6 || packet.hop_limit != 255 || usize::from(packet.l4) != L4 {
        return false;
    }
    let detects_duplicates = packet.source == UNSPECIFIED;
    // A group sends nothing (RFC 4291 2.7), nor does a loopback address outside its host (2.5.3).
    if packet.is_martian() && !detects_duplicates {
        return false;
    }
    let Some(len) = packet.len.checked_sub(IP_LEN + SOLICITATION_LEN) else {
        return false;
    };
    let Some(Aligned(message)) = frame.load::<{ SOLICITATION_LEN as usize }>(L4) else {
        return false;
    };
    let [kind, code, ..] = message;
    let [_, _, _, _, _, _, _, _, target @ ..] = message;
    if kind != SOLICITATION || code != 0 || target[0] == 0xff {
        return false;
    }
    found.source = packet.source;
    found.target = target;
    let Some(Aligned(sender)) = frame.load::<6>(6) else {
        return false;
    };
    let (source, to) = (&packet.source, &packet.target);
    let sum = checksum::pseudo(source, to, len + SOLICITATION_LEN, ICMPV6);
    let mut options = Options {
        sum: checksum::add(sum, &message),
        mac: sender,
        has_mac: false,
    };
    if !add_options(frame, len, &mut options) || checksum::finish(options.sum) != 0 {
        return false;
    }
    found.mac = options.mac;
    !detects_duplicates || !options.has_mac && is_solicited_node(to)
}

/// What a solicitation's options add to it.
#[repr(C)]
struct Options {
    /// The checksum's sum.
    sum: u64,
    /// The address in the first Source Link-Layer Address option; without one, that of the frame.
    mac: [u8; 6],
    /// There is such an option.
    has_mac: bool,
}

/// Reads `len` bytes of options, unit by unit; false if one has no length, or is longer than the message.
#[inline(never)]
fn add_options<F: Frame>(frame: &F, len: u16, options: &mut Options) -> bool {
    // Units of the current option that are still to come.
    let mut rest = 0;
    let mut unit = 0;
    while unit <= UNITS_MAX {
        if unit * UNIT == len {
            return rest == 0;
        }
        let at = L4 + usize::from(SOLICITATION_LEN + unit * UNIT);
        let Some(Aligned(bytes)) = frame.load::<{ UNIT as usize }>(at) else {
            return false;
        };
        options.sum = checksum::add(options.sum, &bytes);
        if rest == 0 {
            let [kind, units, mac @ ..] = bytes;
            // Ethernet's addresses fill one unit (RFC 2464 6).
            if units == 0 || kind == SOURCE_LINK_LAYER && units != 1 {
                return false;
            }
            if kind == SOURCE_LINK_LAYER && !options.has_mac {
                (options.mac, options.has_mac) = (mac, true);
            }
            rest = units;
        }
        rest -= 1;
        unit += 1;
    }
    false
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

/// Whether the frame is an ICMP redirect (RFC 4861 4.5, RFC 792).
#[inline(always)]
pub fn is_redirect<F: Frame>(frame: &F) -> bool {
    let is = |at, value| frame.load::<1>(at).is_some_and(|bytes| bytes.0 == [value]);
    match frame.ethertype() {
        Some(packet::ETHERTYPE_IPV6) => is(L3 + 6, ICMPV6) && is(L4, REDIRECT),
        // The kernel's own redirects have no IP options.
        Some(packet::ETHERTYPE_IPV4) => {
            is(L3, V4_PLAIN) && is(L3 + 9, ICMP) && is(L3 + V4_LEN, REDIRECT4)
        }
        _ => false,
    }
}

/// Writes the advertisement, a whole frame, that `owner` has the target.
#[inline(always)]
pub fn advertise(
    solicitation: &Solicitation,
    owner: Neighbor<'_>,
    frame: &mut [u8; ADVERTISEMENT_LEN],
) {
    let mac = owner.mac;
    let (to, to_mac, solicited) = if solicitation.source == UNSPECIFIED {
        (ALL_NODES, ALL_NODES_MAC, 0)
    } else {
        (solicitation.source, solicitation.mac, SOLICITED)
    };
    let router = if owner.is_router { ROUTER } else { 0 };
    let flags = router | solicited | OVERRIDE;
    let head = [ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    let option = [TARGET_LINK_LAYER, 1];
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(mac);
    frame[12..14].copy_from_slice(&packet::ETHERTYPE_IPV6);
    frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    frame[22..38].copy_from_slice(&solicitation.target);
    frame[38..54].copy_from_slice(&to);
    frame[54..62].copy_from_slice(&head);
    frame[62..78].copy_from_slice(&solicitation.target);
    frame[78..80].copy_from_slice(&option);
    frame[80..].copy_from_slice(mac);
    let mut sum = checksum::pseudo(&solicitation.target, &to, 32, ICMPV6);
    sum = checksum::add(sum, &head);
    sum = checksum::add(sum, &solicitation.target);
    sum = checksum::add(sum, &option);
    sum = checksum::add(sum, mac);
    frame[56..58].copy_from_slice(&checksum::finish(sum).to_be_bytes());
}

#[cfg(test)]
mod tests;
