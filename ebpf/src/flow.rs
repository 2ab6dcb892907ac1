//! Flows: the connection tracking entries. A connection is decided once; its flow says how to translate every later packet.
//!
//! Each direction has an entry of its own in the map `flow`: the client's packets get DNAT (and SNAT, if masqueraded), the
//! replies the reverse.

use crate::packet::Packet;
use crate::pick::{fold, mix};
use crate::stage::Stage;

/// Entries of the map `flow`, one for each direction of an established connection; the least recently used is evicted when it
/// is full.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The NAT ports, which masqueraded connections get on the node's address, lower part: from, below. Between the parts lie
/// node ports, and the ports that the kernel gives to the node's own sockets.
pub const NAT_PORTS_LOW: (u16, u16) = (10_000, 30_000);
/// The upper part: from here to the last.
pub const NAT_PORTS_HIGH: u16 = 61_000;

/// The resolution of `seen_ns`: it is stored only when it is older than this, to spare the cache line.
pub const SEEN_STEP_NS: u64 = 1_000_000_000;

/// The key of a flow: the 5-tuple of one direction of a connection, as its packets arrive.
// Aligned as a packet is.
#[repr(C, align(8))]
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
    /// IP protocol number, in a whole word: equal keys are equal bytes.
    pub protocol: u32,
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
    /// The bits [`REPLY`] to [`BY_HOST`].
    pub kind: u32,
    /// The slot that the backend was selected from.
    pub slot: u32,
    /// The backend's id; [`crate::decide::NO_BACKEND`] for an activator.
    pub backend: u32,
    /// The backend's generation.
    pub generation: u32,
    /// The progress of the connection, a [`Stage`].
    pub stage: u32,
    /// The counters in which the flow is open: [`COUNTED`], [`LOADED`]. The program or agent that swaps it to 0 counts the
    /// end. Of a reply flow, which is open in none: 0 or [`TAKEN`], and above [`EXPECTED_SHIFT`](crate::opening::EXPECTED_SHIFT)
    /// the acknowledgement that an opening one expects.
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
/// In [`Flow::kind`]: the connection is [opening](crate::opening), its entries are in the map `opening`.
pub const OPENING: u32 = 64;
/// In [`Flow::kind`]: the host's stack delivers the translated packets, to a pod of another CNI plugin.
pub const BY_HOST: u32 = 128;

/// In [`Flow::open`]: it is open in the VIP's [counts](crate::counts).
pub const COUNTED: u64 = 1;
/// In [`Flow::open`]: it is open in its backend's [load](crate::load).
pub const LOADED: u64 = 2;
/// In [`Flow::open`], of a reply flow only: another connection takes its NAT port.
pub const TAKEN: u64 = 4;

impl FlowKey {
    /// The IP protocol number.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "it was widened")]
    pub const fn protocol(&self) -> u8 {
        self.protocol as u8
    }

    /// The flow that a packet belongs to.
    #[inline(always)]
    pub const fn of(packet: &Packet) -> Self {
        Self {
            source: packet.source,
            target: packet.target,
            source_port: packet.source_port,
            target_port: packet.target_port,
            protocol: packet.protocol as u32,
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
    /// Nanoseconds since its last packet.
    #[inline(always)]
    pub const fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.seen_ns)
    }

    /// Whether the NAT port of this flow, which is one of replies, is free for another connection at `now_ns`.
    #[inline(always)]
    pub const fn releases_port(&self, protocol: u8, now_ns: u64) -> bool {
        Stage(self.stage).releases_port(protocol, self.silent_ns(now_ns))
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

/// NAT ports of one backend: as many connections to it can be masqueraded at a time.
pub const NAT_PORTS: u32 =
    (NAT_PORTS_LOW.1 - NAT_PORTS_LOW.0) as u32 + (u16::MAX - NAT_PORTS_HIGH) as u32 + 1;

/// The NAT port at a place of the cycle through all of them; places wrap.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "below the number of ports in the ranges"
)]
pub const fn nat_port(place: u32, of: NatPorts) -> u16 {
    let low = (NAT_PORTS_LOW.1 - NAT_PORTS_LOW.0) as u32;
    let place = place % NAT_PORTS;
    let port = if place < low {
        NAT_PORTS_LOW.0 + place as u16
    } else {
        NAT_PORTS_HIGH + (place - low) as u16
    };
    // Both ranges begin with an even port and end with an odd one.
    match of {
        NatPorts::All => port,
        NatPorts::Odd => port | 1,
        NatPorts::Even => port & !1,
    }
}

/// Cursors of the map `nat_cursor`. Backends that share one use the cycle of ports faster, and skip ports in use.
pub const NAT_CURSORS: u32 = 1 << 12;

/// The cursor of the backend that these replies come from: it advances with each port that is taken, so that the port at it
/// is the least recently used one.
#[inline(always)]
pub const fn nat_cursor(reply: &FlowKey) -> u32 {
    let hash = fold(
        mix((reply.source_port as u64) << 8 | reply.protocol as u64),
        &reply.source,
    );
    (hash >> 32) as u32 % NAT_CURSORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nat_ports_fill_the_reserved_ranges_and_nothing_else() {
        let cycle = |of| (0..NAT_PORTS).map(move |place| nat_port(place, of));
        let outside = |port: &u16| {
            !(NAT_PORTS_LOW.0..NAT_PORTS_LOW.1).contains(port) && *port < NAT_PORTS_HIGH
        };
        for (of, count) in [
            (NatPorts::All, NAT_PORTS),
            (NatPorts::Odd, NAT_PORTS / 2),
            (NatPorts::Even, NAT_PORTS / 2),
        ] {
            let ports: std::collections::BTreeSet<u16> = cycle(of).collect();
            assert_eq!(ports.len(), count as usize, "each once in a cycle");
            assert_eq!(ports.iter().filter(|port| outside(port)).count(), 0);
            assert_eq!(nat_port(NAT_PORTS, of), nat_port(0, of), "it wraps");
        }
        assert!(cycle(NatPorts::Odd).all(|port| port % 2 == 1));
        assert!(cycle(NatPorts::Even).all(|port| port % 2 == 0));
    }

    #[test]
    fn a_backend_has_one_cursor_for_all_its_ports() {
        let back = |source_port, target_port| FlowKey {
            source: [3; 16],
            source_port,
            target_port,
            ..FlowKey::default()
        };
        assert_eq!(nat_cursor(&back(80, 1)), nat_cursor(&back(80, 2)));
        let cursors: std::collections::BTreeSet<u32> =
            (0..100).map(|port| nat_cursor(&back(port, 1))).collect();
        assert!(cursors.len() > 90 && cursors.iter().all(|cursor| *cursor < NAT_CURSORS));
    }

    #[test]
    fn a_reply_comes_from_the_new_target_to_the_new_source() {
        let there = FlowKey {
            source: [1; 16],
            target: [2; 16],
            source_port: 40_000,
            target_port: 80,
            protocol: 6,
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
