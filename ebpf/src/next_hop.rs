//! The next hops of translated packets. Each processor remembers what it has found in the host's routes and neighbours until the kernel's next
//! tick, 1 to 10 ms: the lookup is a third of a program's time for a packet. What changes in them applies from that tick on.

use crate::neighbors::words;
use crate::packet::{ETHERTYPE, Packet};

/// Next hops that each processor remembers; a power of two.
pub const NEXT_HOPS_MAX: u32 = 256;
/// Of the packets that each remembered next hop takes, one in this time is left to the kernel.
const LEFT_STEP_NS: u64 = 1_000_000_000;
/// The least MTU of a link that carries IPv6 (RFC 8200 5).
pub const MTU_MIN: u16 = 1_280;
/// Bytes of both link-layer addresses of a frame.
pub const MACS: usize = ETHERTYPE;

/// What was found, and the packets that it was found for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remembered<T> {
    /// What the host's rules and routes may depend on.
    pub way: Way,
    /// The tick in which it was found.
    pub tick: u64,
    /// What was found.
    pub hop: T,
}

/// A neighbour of the uplink, to which its XDP program sends frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHop {
    /// CLOCK_BOOTTIME of the last packet that was left to the kernel, which probes only neighbours that it sends to itself.
    pub left_ns: u64,
    /// The longest packet that it is known to take, in bytes.
    pub len: u16,
    /// The beginning of frames to it: its link-layer address, and the uplink's.
    pub macs: [u8; MACS],
    /// Zero, in place of padding.
    pub pad: u16,
}

const _: () = assert!(size_of::<NextHop>() == 24, "no padding");

/// A router or host to which the classifiers send packets: the kernel knows its link-layer address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteHop {
    /// Its address, in network order; of IPv4 the first word.
    pub address: [u32; 4],
    /// Its link's index.
    pub interface: u32,
    /// 1: its address is one of IPv4.
    pub v4: u32,
}

/// The ends of a packet as it is sent on, and its protocol.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The source address, as two words; IPv4 mapped.
    pub source: [u64; 2],
    /// The address that is looked up, likewise.
    pub target: [u64; 2],
    /// IP protocol number.
    pub protocol: u64,
}

impl Way {
    /// That of a packet, between these addresses.
    #[inline(always)]
    pub const fn of(packet: &Packet, source: &[u8; 16], target: &[u8; 16]) -> Self {
        Self {
            source: words(source),
            target: words(target),
            protocol: packet.protocol as u64,
        }
    }

    /// Its place among those that are remembered.
    #[inline(always)]
    pub const fn place(&self) -> u32 {
        let [a, b] = self.source;
        let [c, d] = self.target;
        let mixed = (a ^ b.rotate_left(16) ^ c.rotate_left(32) ^ d.rotate_left(48))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 56) as u32 & (NEXT_HOPS_MAX - 1)
    }
}

impl NextHop {
    /// Decides whether a packet that does not find its next hop here is left to the kernel, and notes the time.
    #[inline(always)]
    pub fn leaves_one(&mut self, now_ns: u64) -> bool {
        let is_first = self.left_ns == 0;
        let is_over = now_ns.saturating_sub(self.left_ns) > LEFT_STEP_NS;
        if is_over {
            self.left_ns = now_ns;
        }
        is_over && !is_first
    }
}

impl<T> Remembered<T> {
    /// Whether it is that of a packet, now.
    #[inline(always)]
    pub fn is_for(&self, way: &Way, tick: u64) -> bool {
        self.tick == tick && self.way == *way
    }
}

/// Whether a packet fits each link of its family, so that no MTU is looked up.
#[inline(always)]
pub const fn always_fits(packet: &Packet) -> bool {
    packet.v4 == 0 && packet.len <= MTU_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{TCP, UDP};

    fn way(source: u8, target: u8, protocol: u8) -> Way {
        let packet = Packet {
            protocol,
            ..Packet::default()
        };
        let address = |last| {
            let mut address = [0x20; 16];
            address[15] = last;
            address
        };
        Way::of(&packet, &address(source), &address(target))
    }

    #[test]
    fn a_next_hop_is_for_its_own_ends_and_tick_only() {
        let hop = Remembered {
            way: way(1, 2, TCP),
            tick: 7,
            hop: (),
        };
        assert!(hop.is_for(&way(1, 2, TCP), 7));
        for (what, way, tick) in [
            ("source", way(3, 2, TCP), 7),
            ("target", way(1, 3, TCP), 7),
            ("protocol", way(1, 2, UDP), 7),
            ("tick", way(1, 2, TCP), 8),
        ] {
            assert!(!hop.is_for(&way, tick), "{what}");
        }
    }

    #[test]
    fn one_packet_a_second_is_left_to_the_kernel_but_not_the_first() {
        let mut hop = NextHop::default();
        let start = 70 * LEFT_STEP_NS;
        for (after, is_left) in [
            (0, false),
            (LEFT_STEP_NS, false),
            (LEFT_STEP_NS + 1, true),
            (LEFT_STEP_NS + 2, false),
            (3 * LEFT_STEP_NS, true),
        ] {
            assert_eq!(hop.leaves_one(start + after), is_left, "{after}");
        }
    }

    #[test]
    fn different_ends_have_different_places() {
        let of_sources = (0..=255).map(|source| way(source, 2, UDP).place());
        let of_targets = (0..=255).map(|target| way(1, target, UDP).place());
        for places in [
            of_sources.collect::<std::collections::BTreeSet<_>>(),
            of_targets.collect(),
        ] {
            assert!(places.len() > 128, "{}", places.len());
        }
    }
}
