//! The filter of the packets that are logged: a conjunction of what a packet must have.

use crate::config::Net;
use crate::packet::Packet;

/// The value of a map: what a packet must have to be logged. All zero: any packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// The range of its source. Without a mask in any of the three: all addresses.
    pub source: Net,
    /// The range of its destination.
    pub target: Net,
    /// The range of its source or its destination.
    pub either: Net,
    /// Its source port; 0 in any of the three: all ports.
    pub source_port: u16,
    /// Its destination port.
    pub target_port: u16,
    /// Its source port or its destination port.
    pub either_port: u16,
    /// Its IP protocol number, if `has_protocol`.
    pub protocol: u8,
    /// 1: the protocol counts (0 is one, too).
    pub has_protocol: u8,
    /// [`ANY`], [`ONLY_V4`] or [`ONLY_V6`].
    pub family: u64,
}

/// A packet of both families, in [`PacketFilter::family`].
pub const ANY: u64 = 0;
/// Only IPv4.
pub const ONLY_V4: u64 = 4;
/// Only IPv6.
pub const ONLY_V6: u64 = 6;

impl PacketFilter {
    /// Whether the packet is to be logged.
    #[inline(always)]
    pub fn matches(&self, packet: &Packet) -> bool {
        let (source, target) = (&packet.source, &packet.target);
        let ports = (packet.source_port, packet.target_port);
        fits(&self.source, source)
            && fits(&self.target, target)
            && (fits(&self.either, source) || fits(&self.either, target))
            && is_port(self.source_port, ports.0)
            && is_port(self.target_port, ports.1)
            && (is_port(self.either_port, ports.0) || is_port(self.either_port, ports.1))
            && (self.has_protocol == 0 || self.protocol == packet.protocol)
            && match self.family {
                ANY => true,
                ONLY_V4 => packet.v4 == 1,
                _ => packet.v4 == 0,
            }
    }
}

#[inline(always)]
fn fits(net: &Net, address: &[u8; 16]) -> bool {
    !net.is_some() || net.contains(address)
}

#[inline(always)]
const fn is_port(wanted: u16, port: u16) -> bool {
    wanted == 0 || wanted == port
}

#[cfg(not(target_arch = "bpf"))]
// SAFETY: `repr(C)`, `Copy`, no references, no hidden padding, valid for every bit pattern.
unsafe impl aya::Pod for PacketFilter {}

const _: () = assert!(size_of::<PacketFilter>() == 112, "no padding");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{TCP, UDP, mapped};

    const CLIENT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const VIP: [u8; 16] = [0xfd, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

    fn packet() -> Packet {
        Packet {
            source: CLIENT,
            target: VIP,
            source_port: 4_000,
            target_port: 80,
            protocol: TCP,
            ..Packet::default()
        }
    }

    fn single(address: [u8; 16]) -> Net {
        Net {
            prefix: address,
            mask: [0xff; 16],
        }
    }

    #[test]
    fn an_empty_filter_matches_each_packet() {
        assert!(PacketFilter::default().matches(&packet()));
        assert!(PacketFilter::default().matches(&Packet::default()));
    }

    /// What sets one part of a filter.
    type Part = fn(&mut PacketFilter);

    fn matches(part: Part) -> bool {
        let mut filter = PacketFilter::default();
        part(&mut filter);
        filter.matches(&packet())
    }

    #[test]
    fn each_part_excludes_packets_by_itself() {
        let cases: [(Part, Part); 10] = [
            (
                |of| of.source = single(CLIENT),
                |of| of.source = single(VIP),
            ),
            (
                |of| of.target = single(VIP),
                |of| of.target = single(CLIENT),
            ),
            (
                |of| of.either = single(VIP),
                |of| of.either = single([9; 16]),
            ),
            (
                |of| of.either = single(CLIENT),
                |of| of.either = single([9; 16]),
            ),
            (|of| of.source_port = 4_000, |of| of.source_port = 80),
            (|of| of.target_port = 80, |of| of.target_port = 4_000),
            (|of| of.either_port = 80, |of| of.either_port = 81),
            (|of| of.either_port = 4_000, |of| of.either_port = 81),
            (
                |of| (of.has_protocol, of.protocol) = (1, TCP),
                |of| (of.has_protocol, of.protocol) = (1, UDP),
            ),
            (|of| of.family = ONLY_V6, |of| of.family = ONLY_V4),
        ];
        for (number, (matching, excluding)) in cases.into_iter().enumerate() {
            assert!(matches(matching), "{number}");
            assert!(!matches(excluding), "{number}");
        }
    }

    #[test]
    fn ranges_of_ipv4_contain_mapped_addresses() {
        let v4 = Packet {
            source: mapped([192, 0, 2, 9]),
            v4: 1,
            ..packet()
        };
        let filter = PacketFilter {
            source: Net {
                prefix: mapped([192, 0, 2, 0]),
                mask: (!0_u128 << 8).to_be_bytes(),
            },
            family: ONLY_V4,
            ..PacketFilter::default()
        };
        assert!(filter.matches(&v4));
        assert!(!filter.matches(&packet()));
    }
}
