//! Direct forwarding of packets between pods, as [`Config`](super::Config) holds it: off, on, or suspended by a take-over.

use crate::flow::NatPorts;

/// The state of direct forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// All packets are forwarded by the host.
    Off,
    /// Packets between pods bypass the host's forwarding. Routes are looked up as for packets received by this interface,
    /// the one by which pods' packets would reach the host's forwarding.
    By(u32),
    /// Off, because a take-over is in progress and these are the older programs: the newer ones behind them may know the
    /// packet's flow.
    HandingOver,
    /// Off, because a take-over is in progress and these are the newer programs.
    TakingOver,
}

/// [`Forwarding`] in 32 bits: an interface's index, which the kernel keeps below 2^31, 0, or one of two values above.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedForwarding(u32);

impl PackedForwarding {
    const OFF: u32 = 0;
    const HANDING_OVER: u32 = u32::MAX;
    const TAKING_OVER: u32 = u32::MAX - 1;

    /// The state.
    #[inline(always)]
    pub const fn get(self) -> Forwarding {
        match self.0 {
            Self::OFF => Forwarding::Off,
            Self::HANDING_OVER => Forwarding::HandingOver,
            Self::TAKING_OVER => Forwarding::TakingOver,
            interface => Forwarding::By(interface),
        }
    }
}

impl From<Forwarding> for PackedForwarding {
    fn from(forwarding: Forwarding) -> Self {
        Self(match forwarding {
            Forwarding::Off => Self::OFF,
            Forwarding::By(interface) => interface,
            Forwarding::HandingOver => Self::HANDING_OVER,
            Forwarding::TakingOver => Self::TAKING_OVER,
        })
    }
}

impl Forwarding {
    /// The NAT ports that the programs draw: during a take-over older and newer programs draw different ones.
    #[inline(always)]
    pub const fn nat_ports(self) -> NatPorts {
        match self {
            Self::HandingOver => NatPorts::Odd,
            Self::TakingOver => NatPorts::Even,
            Self::Off | Self::By(_) => NatPorts::All,
        }
    }

    /// Whether no other data path has flows of this node.
    #[inline(always)]
    pub const fn is_alone(self) -> bool {
        matches!(self, Self::Off | Self::By(_))
    }

    /// Whether a NAT port whose connection has ended may be given to another one. Not by the newer programs during a
    /// take-over, however long it takes: the older ones run first, and would translate the other connection's replies by the
    /// flow of the ended one, which their table has until all flows have been moved.
    #[inline(always)]
    pub const fn reuses_nat_ports(self) -> bool {
        !matches!(self, Self::TakingOver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_unpacked_as_it_was_packed() {
        for state in [
            Forwarding::Off,
            Forwarding::By(1),
            Forwarding::By(u32::MAX >> 1),
            Forwarding::HandingOver,
            Forwarding::TakingOver,
        ] {
            assert_eq!(PackedForwarding::from(state).get(), state);
        }
        assert_eq!(PackedForwarding::default().get(), Forwarding::Off);
    }

    #[test]
    fn both_sides_of_a_take_over_draw_different_ports() {
        assert_eq!(Forwarding::HandingOver.nat_ports(), NatPorts::Odd);
        assert_eq!(Forwarding::TakingOver.nat_ports(), NatPorts::Even);
        assert_eq!(Forwarding::By(2).nat_ports(), NatPorts::All);
    }

    #[test]
    fn only_the_newer_programs_of_a_take_over_keep_ended_connections_ports() {
        assert!(!Forwarding::TakingOver.reuses_nat_ports());
        for state in [Forwarding::Off, Forwarding::By(1), Forwarding::HandingOver] {
            assert!(state.reuses_nat_ports());
        }
    }
}
