//! What is remembered of a connection that came from outside: decided once, followed by every later packet.

use crate::packet::Transport;

/// Connections remembered on a node, each direction by itself; the least recently used goes when it is full.
pub const FLOWS_MAX: u32 = 1 << 17;

/// The first source port for connections that a node carries to an activator in its own name; below lie the ports
/// that the kernel gives to the node's own sockets.
pub const NAT_PORT_FIRST: u16 = 61_000;

/// How long such a port rests after the last packet of a connection that does not stand, before another gets it:
/// longer than last packets are on their way.
pub const NAT_REST_NS: u64 = 2 * SEEN_STEP_NS;

/// How fresh a flow's `seen_ns` is kept: it is stored only once it is older than this, to spare the cache line.
pub const SEEN_STEP_NS: u64 = 1_000_000_000;

/// The packets of one direction of a connection, as they arrive.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What happens to the packets of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The backend, the acting address, or (for replies) the VIP.
    pub address: [u8; 16],
    /// The next hop to the activator, or (for its replies) the client.
    pub other: [u8; 16],
    /// The port that goes with `address`.
    pub port: u16,
    /// The node's source port towards the activator, or (for its replies) the client's.
    pub other_port: u16,
    /// One of [`FlowKind`].
    pub kind: u32,
    /// The VIP's index.
    pub vip: u32,
    /// For an activator's replies: one of [`Stage`], so that the node's source port is used again when it can be.
    pub stage: u32,
    /// 1 while the connection is counted as open; whoever takes it to 0 counts the close.
    pub open: u64,
    /// CLOCK_BOOTTIME of its last packet, in steps of [`SEEN_STEP_NS`].
    pub seen_ns: u64,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && size_of::<Flow>() == 64);

/// The directions and ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FlowKind {
    /// From a client to a pod of this node: the destination is replaced.
    ToPod = 1,
    /// From a client to a pod of another node: passed on unchanged.
    ToNode = 2,
    /// From a client to an activator: both ends are replaced.
    ToActivator = 3,
    /// A pod's reply: the source becomes the VIP.
    FromPod = 4,
    /// An activator's reply: the source becomes the VIP, the destination the client.
    FromActivator = 5,
}

/// How far a connection to an activator has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// The client asked for it.
    Asked = 0,
    /// The client went on: the connection stands.
    Stands = 1,
    /// The activator finished it, or the client broke it off.
    Ended = 2,
}

impl Stage {
    /// The stage after a packet of the client.
    #[inline(always)]
    pub const fn after(before: u32, packet: &Transport) -> u32 {
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

impl FlowKey {
    /// The flow that a packet belongs to.
    #[inline(always)]
    pub const fn of(packet: &Transport) -> Self {
        Self {
            source: packet.source,
            target: packet.target,
            source_port: packet.source_port,
            target_port: packet.target_port,
            protocol: packet.protocol,
            pad: [0; 3],
        }
    }

    /// The flow of the replies, when this flow's packets go to `address` and `port` instead.
    #[inline(always)]
    #[must_use]
    pub const fn reply_from(&self, address: [u8; 16], port: u16) -> Self {
        Self {
            source: address,
            target: self.source,
            source_port: port,
            target_port: self.source_port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }

    /// The flow of a client to `address` and `port`, when this flow carries the replies to it.
    #[inline(always)]
    #[must_use]
    pub const fn forward_to(&self, address: [u8; 16], port: u16) -> Self {
        Self {
            source: self.target,
            target: address,
            source_port: self.target_port,
            target_port: port,
            protocol: self.protocol,
            pad: [0; 3],
        }
    }
}

impl Flow {
    /// A flow first seen at `seen_ns`, not counted.
    #[inline(always)]
    pub const fn new(kind: FlowKind, vip: u32, address: [u8; 16], port: u16, seen_ns: u64) -> Self {
        Self {
            address,
            other: [0; 16],
            port,
            other_port: 0,
            kind: kind as u32,
            vip,
            stage: Stage::Asked as u32,
            open: 0,
            seen_ns,
        }
    }

    /// The same with its second end.
    #[inline(always)]
    #[must_use]
    pub const fn with_other(self, other: [u8; 16], other_port: u16) -> Self {
        Self {
            other,
            other_port,
            ..self
        }
    }

    /// Whether the port of this flow, an activator's replies, may go to another connection at `now_ns`.
    #[inline(always)]
    pub const fn gives_port(&self, now_ns: u64) -> bool {
        self.stage != Stage::Stands as u32 && now_ns.saturating_sub(self.seen_ns) > NAT_REST_NS
    }
}

/// A source port towards an activator from 32 random bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "below the number of ports in the range"
)]
pub const fn nat_port(random: u32) -> u16 {
    let ports = (u16::MAX - NAT_PORT_FIRST) as u32 + 1;
    NAT_PORT_FIRST + crate::pick::below(random, ports) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_towards_an_activator_fill_the_reserved_range_and_nothing_else() {
        assert_eq!(nat_port(0), NAT_PORT_FIRST);
        assert_eq!(nat_port(u32::MAX), u16::MAX);
    }

    #[test]
    fn a_reply_comes_from_the_backend_to_the_client() {
        let there = FlowKey {
            source: [1; 16],
            target: [2; 16],
            source_port: 40_000,
            target_port: 80,
            protocol: 6,
            pad: [0; 3],
        };
        let back = there.reply_from([3; 16], 8000);
        assert_eq!((back.source, back.source_port), ([3; 16], 8000));
        assert_eq!((back.target, back.target_port), ([1; 16], 40_000));
        assert_eq!(back.forward_to([2; 16], 80), there);
    }
}
