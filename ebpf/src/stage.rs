//! The progress of a connection, as the entries of its two directions record it in [`Flow::stage`](crate::flow::Flow::stage).
//!
//! The client's packets set bits in its own entry (and, if masqueraded, in the reply entry), the backend's packets in the
//! reply entry. Both entries together have the state.

use crate::packet::{Packet, TCP};

/// How long TCP keeps an ended connection's ports: TIME_WAIT of Linux.
pub const TIME_WAIT_NS: u64 = 60 * SECOND_NS;
/// How long packets of a connection that has ended without TIME_WAIT may be in flight.
pub const IN_FLIGHT_NS: u64 = 2 * SECOND_NS;
/// A UDP flow without a packet for so long is over: conntrack's timeout for unreplied UDP.
pub const UDP_IDLE_NS: u64 = 30 * SECOND_NS;

const SECOND_NS: u64 = 1_000_000_000;

/// The client has sent a second packet.
const CONFIRMED: u32 = 1;
/// The backend has sent its FIN before the client: it holds TIME_WAIT.
const BACKEND_FIRST: u32 = 1 << 1;
/// The client has sent its FIN.
const CLIENT_FIN: u32 = 1 << 2;
/// The backend has sent its FIN after the client.
const BACKEND_LAST: u32 = 1 << 3;
/// One side has aborted the connection, or SCTP has shut it down.
const ABORTED: u32 = 1 << 4;
/// The backend has sent a packet.
const REPLIED: u32 = 1 << 5;
/// The programs set all of these bits. Those of earlier versions set the first two only, and only of masqueraded connections.
const TRACKED: u32 = 1 << 6;

/// The progress of a connection.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage(pub u32);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The client has sent its first packet.
    Opening,
    /// Both sides may send.
    Established,
    /// One side has closed its direction.
    Closing,
    /// It has ended.
    Ended,
    /// The entry was made by an earlier version's programs, which do not record it.
    Unknown,
}

impl Stage {
    /// The client's first packet.
    pub const NEW: Self = Self(TRACKED);

    /// After a packet of the client. One that opens a connection changes nothing in an established one.
    #[inline(always)]
    #[must_use]
    pub const fn after_client(self, packet: &Packet) -> Self {
        if packet.opens() {
            return if self.is_established() {
                self
            } else {
                Self::NEW
            };
        }
        let end = if !packet.closes() {
            0
        } else if packet.resets() || packet.protocol != TCP {
            ABORTED
        } else {
            CLIENT_FIN
        };
        Self(self.0 | CONFIRMED | end)
    }

    /// After a packet of the backend. A SYN with ACK begins its side of a connection whose ports another one has had.
    #[inline(always)]
    #[must_use]
    pub const fn after_backend(self, packet: &Packet) -> Self {
        let end = if !packet.closes() {
            0
        } else if packet.resets() || packet.protocol != TCP {
            ABORTED
        } else if self.0 & (BACKEND_FIRST | BACKEND_LAST) != 0 {
            0
        } else if self.0 & CLIENT_FIN != 0 {
            BACKEND_LAST
        } else {
            BACKEND_FIRST
        };
        let before = if packet.accepts() {
            self.0 & !(ABORTED | BACKEND_FIRST | BACKEND_LAST)
        } else {
            self.0
        };
        Self(before | REPLIED | end)
    }

    /// What both entries of a connection record.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The state of the connection.
    pub fn state(self) -> State {
        let is = |bits| self.0 & bits != 0;
        let backend = is(BACKEND_FIRST | BACKEND_LAST);
        if is(ABORTED) || backend && (is(CLIENT_FIN) || !is(TRACKED)) {
            State::Ended
        } else if backend || is(CLIENT_FIN) {
            State::Closing
        } else if is(CONFIRMED) {
            State::Established
        } else if is(TRACKED) {
            State::Opening
        } else {
            State::Unknown
        }
    }

    /// Whether the client has confirmed the connection, and neither side that is recorded here has closed it.
    #[inline(always)]
    pub const fn is_established(self) -> bool {
        const ENDS: u32 = BACKEND_FIRST | BACKEND_LAST | CLIENT_FIN | ABORTED;
        self.0 & (CONFIRMED | ENDS) == CONFIRMED
    }

    /// Whether the backend has sent a packet.
    #[inline(always)]
    pub const fn is_replied(self) -> bool {
        self.0 & REPLIED != 0
    }

    /// Whether one side has aborted the connection, or SCTP has shut it down.
    #[inline(always)]
    pub const fn is_aborted(self) -> bool {
        self.0 & ABORTED != 0
    }

    /// Whether the NAT port of the connection is free for another one after this silence: the backend's socket is gone, also
    /// from TIME_WAIT. For the reply entry of a masqueraded connection.
    #[inline(always)]
    pub const fn releases_port(self, protocol: u8, silent_ns: u64) -> bool {
        let held_ns = if protocol != TCP {
            return self.gives_way(protocol, silent_ns);
        } else if self.0 & (ABORTED | BACKEND_LAST) != 0 {
            IN_FLIGHT_NS
        } else if self.0 & BACKEND_FIRST != 0 || self.0 & CONFIRMED == 0 {
            TIME_WAIT_NS
        } else {
            return false;
        };
        silent_ns > held_ns
    }

    /// Whether another connection may take the NAT port if no port is free: the connection has ended, or was never
    /// established. The backend may hold TIME_WAIT, and refuse the first SYN.
    #[inline(always)]
    pub const fn gives_way(self, protocol: u8, silent_ns: u64) -> bool {
        let ended = self.0 & (ABORTED | BACKEND_LAST) != 0
            || self.0 & BACKEND_FIRST != 0 && self.0 & CLIENT_FIN != 0;
        let open = self.0 & CONFIRMED != 0 && self.0 & BACKEND_FIRST == 0;
        ended
            || !open && silent_ns > IN_FLIGHT_NS
            || protocol == crate::packet::UDP && silent_ns > UDP_IDLE_NS
    }
}

#[cfg(test)]
mod tests;
