//! What is remembered of a connection: decided once, followed by every later packet.

use crate::packet::{Packet, UDP};

/// Connections remembered on a node, each direction by itself; the least recently used goes when it is full.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The node's ports that others' connections get, lower part: from, below. Between the parts lie node ports, and those
/// that the kernel gives to the node's own sockets.
pub const NAT_PORTS_LOW: (u16, u16) = (10_000, 30_000);
/// The upper part: from here to the last.
pub const NAT_PORTS_HIGH: u16 = 61_000;

/// How long such a port rests after the last packet of a connection that does not stand, before another gets it:
/// longer than last packets are on their way.
pub const NAT_REST_NS: u64 = 2 * SEEN_STEP_NS;

/// How fresh a flow's `seen_ns` is kept: it is stored only once it is older than this, to spare the cache line.
pub const SEEN_STEP_NS: u64 = 1_000_000_000;

/// The packets of one direction of a connection, as they arrive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// From.
    pub source: [u8; 16],
    /// To.
    pub target: [u8; 16],
    /// From which port.
    pub source_port: u16,
    /// To which port.
    pub target_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}

/// What happens to the packets of a flow: what both ends become.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// From.
    pub source: [u8; 16],
    /// To; for [`ONWARD`] the next hop.
    pub target: [u8; 16],
    /// From which port.
    pub source_port: u16,
    /// To which port.
    pub target_port: u16,
    /// What it is: the bits below.
    pub kind: u32,
    /// The slot that decided.
    pub slot: u32,
    /// The backend's id; [`crate::decide::NO_BACKEND`] for an activator.
    pub backend: u32,
    /// The backend's generation.
    pub generation: u32,
    /// For replies to the node's own ports: one of [`Stage`], so that a port is used again when it can be.
    pub stage: u32,
    /// What counts it as open: [`COUNTED`], [`LOADED`]; whoever takes it to 0 counts the end.
    pub open: u64,
    /// CLOCK_BOOTTIME of its last packet, in steps of [`SEEN_STEP_NS`].
    pub seen_ns: u64,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && size_of::<Flow>() == 72);

/// It carries replies.
pub const REPLY: u32 = 1;
/// Packets are passed on as they are, to the node of the backend, which knows the VIP as well.
pub const ONWARD: u32 = 2;
/// The other side sees a port of the node's own.
pub const HIDDEN: u32 = 4;
/// It leads to an activator, or back from one.
pub const ACTIVATED: u32 = 8;
/// Of a Service: a connection to a backend that is gone is reset.
pub const SERVICE: u32 = 16;
/// It leads nowhere any more: its packets are refused.
pub const ENDED: u32 = 32;

/// In [`Flow::open`]: an app's connections, with the time they last.
pub const COUNTED: u64 = 1;
/// In [`Flow::open`]: what its backend is given.
pub const LOADED: u64 = 2;

/// How far a connection through a port of the node's own has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// The client asked for it.
    Asked = 0,
    /// The client went on: the connection stands.
    Stands = 1,
    /// The other side finished it, or the client broke it off.
    Ended = 2,
}

impl Stage {
    /// The stage after a packet of the client.
    #[inline(always)]
    pub const fn after(before: u32, packet: &Packet) -> u32 {
        if packet.opens() {
            Self::Asked as u32
        } else if packet.resets() {
            Self::Ended as u32
        } else if before == Self::Asked as u32 {
            Self::Stands as u32
        } else {
            before
        }
    }
}

/// A conversation of datagrams whose client has been silent for so long is over, if another one has its ends.
pub const QUIET_NS: u64 = 30 * SEEN_STEP_NS;

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

    /// The flow of the answers to packets that the flow has changed.
    #[inline(always)]
    #[must_use]
    pub const fn answered(&self, flow: &Flow) -> Self {
        Self {
            source: flow.target,
            target: flow.source,
            source_port: flow.target_port,
            target_port: flow.source_port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }

    /// The other way round.
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

impl Flow {
    /// Whether the port of this flow, replies to the node, may go to another connection at `now_ns`.
    #[inline(always)]
    pub const fn gives_port(&self, protocol: u8, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.seen_ns);
        // Nobody says that datagrams have ended.
        let ended = self.stage != Stage::Stands as u32 && silent_ns > NAT_REST_NS;
        ended || protocol == UDP && silent_ns > QUIET_NS
    }

    /// Whether packets go to a backend by it, and not back, nor on to another node that decides for itself.
    #[inline(always)]
    pub const fn loads(&self) -> bool {
        self.kind & (REPLY | ONWARD | ACTIVATED | ENDED) == 0
    }

    /// Whether it is of this kind.
    #[inline(always)]
    pub const fn is(&self, kind: u32) -> bool {
        self.kind & kind != 0
    }
}

/// Which of the node's ports are drawn: a half while another data path may draw from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// All.
    All,
    /// Odd ones.
    Odd,
    /// Even ones.
    Even,
}

/// A port of the node's own for somebody else's connection, from 32 random bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "below the number of ports in the ranges"
)]
pub const fn nat_port(random: u32, of: Ports) -> u16 {
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
        Ports::All => port,
        Ports::Odd => port | 1,
        Ports::Even => port & !1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_nodes_own_fill_the_reserved_ranges_and_nothing_else() {
        assert_eq!(nat_port(0, Ports::All), NAT_PORTS_LOW.0);
        assert_eq!(nat_port(u32::MAX, Ports::All), u16::MAX);
        let outside = |port: &u16| {
            !(NAT_PORTS_LOW.0..NAT_PORTS_LOW.1).contains(port) && *port < NAT_PORTS_HIGH
        };
        let drawn = |of| (0..=u32::from(u16::MAX)).map(move |high| nat_port(high << 16, of));
        for of in [Ports::All, Ports::Odd, Ports::Even] {
            assert_eq!(drawn(of).filter(outside).count(), 0);
        }
        assert!(drawn(Ports::Odd).all(|port| port % 2 == 1));
        assert!(drawn(Ports::Even).all(|port| port % 2 == 0));
    }

    #[test]
    fn an_answer_comes_from_the_new_target_to_the_new_source() {
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
        let back = there.answered(&changed);
        assert_eq!((back.source, back.source_port), ([3; 16], 8000));
        assert_eq!((back.target, back.target_port), ([1; 16], 40_000));
        assert_eq!(there.reversed().reversed(), there);
    }
}
