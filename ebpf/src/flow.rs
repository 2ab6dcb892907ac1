//! Flows: the connection tracking entries. A connection is decided once; its flow says how to translate every later packet.
//!
//! Each direction has an entry of its own in the map `flow`: the client's packets get DNAT (and SNAT, if masqueraded), the
//! replies the reverse.

use crate::packet::{Packet, UDP};
use crate::pick::{fold, mix};

/// Entries of the map `flow`, one for each direction of a connection; the least recently used is evicted when it is full.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The NAT ports, which masqueraded connections get on the node's address, lower part: from, below. Between the parts lie
/// node ports, and the ports that the kernel gives to the node's own sockets.
pub const NAT_PORTS_LOW: (u16, u16) = (10_000, 30_000);
/// The upper part: from here to the last.
pub const NAT_PORTS_HIGH: u16 = 61_000;

/// How long a NAT port stays in TIME_WAIT after the last packet of a connection that is not established, before another
/// connection may use it: longer than packets stay in flight.
pub const NAT_TIME_WAIT_NS: u64 = 2 * SEEN_STEP_NS;

/// The resolution of `seen_ns`: it is stored only when it is older than this, to spare the cache line.
pub const SEEN_STEP_NS: u64 = 1_000_000_000;

/// The key of a flow: the 5-tuple of one direction of a connection, as its packets arrive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The source address; IPv4 is mapped.
    pub source: [u8; 16],
    /// The destination address; IPv4 is mapped.
    pub target: [u8; 16],
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub target_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}

/// The entry of a flow: the ends that its packets get. Written by the kernel; the agent copies flows in a take-over and
/// removes those that are idle.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The translated source.
    pub source: [u8; 16],
    /// The translated target; for [`FORWARDED`] the next hop.
    pub target: [u8; 16],
    /// The translated source port.
    pub source_port: u16,
    /// The translated target port.
    pub target_port: u16,
    /// The bits [`REPLY`] to [`REVOKED`].
    pub kind: u32,
    /// The slot that the backend was selected from.
    pub slot: u32,
    /// The backend's id; [`crate::decide::NO_BACKEND`] for an activator.
    pub backend: u32,
    /// The backend's generation.
    pub generation: u32,
    /// For replies to NAT ports: one of [`Stage`], which says when the port can be used again.
    pub stage: u32,
    /// The counters in which the flow is open: [`COUNTED`], [`LOADED`]. The program or agent that swaps it to 0 counts the
    /// end.
    pub open: u64,
    /// CLOCK_BOOTTIME of its last packet, in steps of [`SEEN_STEP_NS`].
    pub seen_ns: u64,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && size_of::<Flow>() == 72);

/// In [`Flow::kind`]: the direction of the replies.
pub const REPLY: u32 = 1;
/// In [`Flow::kind`]: packets are forwarded unchanged to the backend's node, which has the VIP's slot as well.
pub const FORWARDED: u32 = 2;
/// In [`Flow::kind`]: the connection is masqueraded: its source is a NAT port of the node.
pub const MASQUERADED: u32 = 4;
/// In [`Flow::kind`]: the other end is an activator.
pub const TO_ACTIVATOR: u32 = 8;
/// In [`Flow::kind`]: the frontend is a Service's; the connection is reset when its backend is gone.
pub const SERVICE: u32 = 16;
/// In [`Flow::kind`]: the flow is revoked, because its socket's backend is gone: its packets are rejected.
pub const REVOKED: u32 = 32;

/// In [`Flow::open`]: it is open in the VIP's [counts](crate::counts).
pub const COUNTED: u64 = 1;
/// In [`Flow::open`]: it is open in its backend's [load](crate::load).
pub const LOADED: u64 = 2;

/// The state of a connection through a NAT port, as seen by its client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// The client has sent the first packet.
    New = 0,
    /// The client has sent a second packet.
    Established = 1,
    /// The backend has closed it, or the client has reset it.
    Closed = 2,
}

impl Stage {
    /// The stage after a packet of the client.
    #[inline(always)]
    pub const fn after(before: u32, packet: &Packet) -> u32 {
        if packet.opens() {
            Self::New as u32
        } else if packet.resets() {
            Self::Closed as u32
        } else if before == Self::New as u32 {
            Self::Established as u32
        } else {
            before
        }
    }
}

/// A UDP flow without a packet of its client for so long is over if another one has the same ends: conntrack's timeout for
/// unreplied UDP.
pub const UDP_IDLE_NS: u64 = 30 * SEEN_STEP_NS;

impl FlowKey {
    /// The flow that a packet belongs to.
    #[inline(always)]
    pub const fn of(packet: &Packet) -> Self {
        Self {
            source: packet.source,
            target: packet.target,
            source_port: packet.source_port,
            target_port: packet.target_port,
            protocol: packet.protocol,
            pad: [0; 3],
        }
    }

    /// The key of the replies to packets that the flow has translated.
    #[inline(always)]
    #[must_use]
    pub const fn reply(&self, flow: &Flow) -> Self {
        Self {
            source: flow.target,
            target: flow.source,
            source_port: flow.target_port,
            target_port: flow.source_port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }

    /// The opposite direction of the same ends.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self {
            source: self.target,
            target: self.source,
            source_port: self.target_port,
            target_port: self.source_port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }
}

/// The hash of a client's flow: the same on every node.
#[inline(always)]
pub const fn flow_hash(key: &FlowKey) -> u64 {
    let ports = (key.source_port as u64) << 32 | (key.target_port as u64) << 16;
    fold(
        fold(mix(ports | key.protocol as u64), &key.target),
        &key.source,
    )
}

impl Flow {
    /// Whether the NAT port of this flow, which is one of replies, is free for another connection at `now_ns`.
    #[inline(always)]
    pub const fn releases_port(&self, protocol: u8, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.seen_ns);
        // UDP has no end of a connection.
        let ended = self.stage != Stage::Established as u32 && silent_ns > NAT_TIME_WAIT_NS;
        ended || protocol == UDP && silent_ns > UDP_IDLE_NS
    }

    /// Whether it counts as its backend's load: it carries a client's packets, and this node translates them.
    #[inline(always)]
    pub const fn loads(&self) -> bool {
        self.kind & (REPLY | FORWARDED | TO_ACTIVATOR | REVOKED) == 0
    }

    /// Whether [`Flow::kind`] has one of these bits.
    #[inline(always)]
    pub const fn is(&self, kind: u32) -> bool {
        self.kind & kind != 0
    }
}

/// The NAT ports that are drawn: one half while another data path draws from the other half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatPorts {
    /// All.
    All,
    /// Odd ones.
    Odd,
    /// Even ones.
    Even,
}

/// A NAT port, from 32 random bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "below the number of ports in the ranges"
)]
pub const fn nat_port(random: u32, of: NatPorts) -> u16 {
    let low = (NAT_PORTS_LOW.1 - NAT_PORTS_LOW.0) as u32;
    let high = (u16::MAX - NAT_PORTS_HIGH) as u32 + 1;
    let drawn = crate::pick::below(random, low + high);
    let port = if drawn < low {
        NAT_PORTS_LOW.0 + drawn as u16
    } else {
        NAT_PORTS_HIGH + (drawn - low) as u16
    };
    // Both ranges begin with an even port and end with an odd one.
    match of {
        NatPorts::All => port,
        NatPorts::Odd => port | 1,
        NatPorts::Even => port & !1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nat_ports_fill_the_reserved_ranges_and_nothing_else() {
        assert_eq!(nat_port(0, NatPorts::All), NAT_PORTS_LOW.0);
        assert_eq!(nat_port(u32::MAX, NatPorts::All), u16::MAX);
        let outside = |port: &u16| {
            !(NAT_PORTS_LOW.0..NAT_PORTS_LOW.1).contains(port) && *port < NAT_PORTS_HIGH
        };
        let drawn = |of| (0..=u32::from(u16::MAX)).map(move |high| nat_port(high << 16, of));
        for of in [NatPorts::All, NatPorts::Odd, NatPorts::Even] {
            assert_eq!(drawn(of).filter(outside).count(), 0);
        }
        assert!(drawn(NatPorts::Odd).all(|port| port % 2 == 1));
        assert!(drawn(NatPorts::Even).all(|port| port % 2 == 0));
    }

    #[test]
    fn a_reply_comes_from_the_new_target_to_the_new_source() {
        let there = FlowKey {
            source: [1; 16],
            target: [2; 16],
            source_port: 40_000,
            target_port: 80,
            protocol: 6,
            pad: [0; 3],
        };
        let changed = Flow {
            source: [1; 16],
            target: [3; 16],
            source_port: 40_000,
            target_port: 8000,
            ..Flow::default()
        };
        let back = there.reply(&changed);
        assert_eq!((back.source, back.source_port), ([3; 16], 8000));
        assert_eq!((back.target, back.target_port), ([1; 16], 40_000));
        assert_eq!(there.reversed().reversed(), there);
    }
}
