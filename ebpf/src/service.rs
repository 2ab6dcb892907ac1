//! What a node knows of one VIP, in two words that each change by one aligned store: no reader ever sees half a change.
//!
//! An app has one slot, found by its VIP alone. A Service's port has one for each answer that it gives: to the cluster IP,
//! to outside addresses, and, where policy Local tells sources apart, to pods and the node at those.

use crate::packet;

/// Slots that VIP ranges can name: all apps together, and cluster IPs.
pub const VIPS_MAX: u32 = 1 << 20;

/// All slots: those of ranges, then those of what is found by address and port.
pub const SLOTS_MAX: u32 = VIPS_MAX + (1 << 17);

/// Backend ids in the arena of sets.
pub const SETS_MAX: u32 = 1 << 22;

/// Backend ids in one row of the arena, as the map has it; extents begin at rows, sets anywhere in them.
pub const ROW_LEN: u32 = 16;

/// New connections are drawn from `0..SHARE_WHOLE`; a share says how many of them go to an activator.
pub const SHARE_WHOLE: u8 = 255;

const _: () = assert!(SETS_MAX <= 1 << 24, "an offset has 24 bits in the set word");

/// One VIP's entry. Written by the agent only, one word at a time; all zero is a VIP that the node does not follow.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// How to act: see [`Mode`].
    pub route: u64,
    /// Where the backends are: see [`Set`].
    pub set: u64,
}

/// Where a slot leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// To an activator.
    #[default]
    Proxy = 0,
    /// Straight to the backends.
    Serve = 1,
    /// Nowhere, and the client is told: port unreachable.
    Reject = 2,
    /// Nowhere, silently.
    Drop = 3,
}

/// Whose source address the node's own takes the place of, when a packet leaves the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Hide {
    /// Nobody's.
    #[default]
    Nobody = 0,
    /// That of everybody who is no pod, and of pods too if the node hides all.
    Foreign = 1,
    /// Everybody's.
    Everybody = 2,
    /// The node's own.
    Node = 3,
}

/// The protocols that a slot tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// Any.
    #[default]
    Any = 0,
    /// TCP.
    Tcp = 1,
    /// UDP.
    Udp = 2,
    /// SCTP.
    Sctp = 3,
}

impl Protocol {
    /// The protocol of an IP protocol number.
    #[inline(always)]
    pub const fn of(number: u8) -> Self {
        match number {
            packet::TCP => Self::Tcp,
            packet::UDP => Self::Udp,
            packet::SCTP => Self::Sctp,
            _ => Self::Any,
        }
    }
}

/// The first word of a slot, unpacked. Bits: mode 0-1, share 2-9, leased 10, asleep 11, present 12, gone 13, service 14,
/// sticky 15, port 16-31, protocol 32-33, hide 34-35, split 36, local 37, weighted 38, generation 40-63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one bit of the word, set independently"
)]
pub struct Route {
    /// Where the slot leads.
    pub mode: Mode,
    /// Of an app: of [`SHARE_WHOLE`] new connections in [`Mode::Serve`], how many go to an activator all the same. Of a
    /// Service: its role among its group's slots, which only agents read.
    pub share: u8,
    /// Past the end of the node lease the slot acts as [`Mode::Proxy`].
    pub leased: bool,
    /// Nobody is behind the VIP: its first packet raises a wake event.
    pub asleep: bool,
    /// The node knows this VIP.
    pub present: bool,
    /// There is no such VIP, as control says.
    pub gone: bool,
    /// A Kubernetes Service's, not an app's: nobody activates it.
    pub service: bool,
    /// Clients keep their backend: see [`crate::maps::Extra`].
    pub sticky: bool,
    /// The VIP's port; 0: any.
    pub port: u16,
    /// The VIP's protocol.
    pub protocol: Protocol,
    /// Whose source is hidden.
    pub hide: Hide,
    /// Pods and the node itself use the slot that [`crate::maps::Extra`] names.
    pub split: bool,
    /// Its backends are those of policy Local.
    pub local: bool,
    /// Its backends' weights differ.
    pub weighted: bool,
    /// Of an app: counts the sleeps of this VIP on this node modulo 2^24, so that the kernel raises one event in each. Of a
    /// Service: the number of the group of slots that it belongs to, which only agents read.
    pub generation: u32,
}

impl Route {
    /// A VIP that the node does not follow.
    pub const ABSENT: Self = Self {
        mode: Mode::Proxy,
        share: 0,
        leased: false,
        asleep: false,
        present: false,
        gone: false,
        service: false,
        sticky: false,
        port: 0,
        protocol: Protocol::Any,
        hide: Hide::Nobody,
        split: false,
        local: false,
        weighted: false,
        generation: 0,
    };

    /// As it lies in the map.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        self.mode as u64
            | (self.share as u64) << 2
            | (self.leased as u64) << 10
            | (self.asleep as u64) << 11
            | (self.present as u64) << 12
            | (self.gone as u64) << 13
            | (self.service as u64) << 14
            | (self.sticky as u64) << 15
            | (self.port as u64) << 16
            | (self.protocol as u64) << 32
            | (self.hide as u64) << 34
            | (self.split as u64) << 36
            | (self.local as u64) << 37
            | (self.weighted as u64) << 38
            | ((self.generation & 0xff_ffff) as u64) << 40
    }

    /// From the map.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field is cut to its own bits"
    )]
    pub const fn unpack(word: u64) -> Self {
        Self {
            mode: match word & 3 {
                0 => Mode::Proxy,
                1 => Mode::Serve,
                2 => Mode::Reject,
                _ => Mode::Drop,
            },
            share: (word >> 2) as u8,
            leased: word >> 10 & 1 == 1,
            asleep: word >> 11 & 1 == 1,
            present: word >> 12 & 1 == 1,
            gone: word >> 13 & 1 == 1,
            service: word >> 14 & 1 == 1,
            sticky: word >> 15 & 1 == 1,
            port: (word >> 16) as u16,
            protocol: match word >> 32 & 3 {
                0 => Protocol::Any,
                1 => Protocol::Tcp,
                2 => Protocol::Udp,
                _ => Protocol::Sctp,
            },
            hide: match word >> 34 & 3 {
                0 => Hide::Nobody,
                1 => Hide::Foreign,
                2 => Hide::Everybody,
                _ => Hide::Node,
            },
            split: word >> 36 & 1 == 1,
            local: word >> 37 & 1 == 1,
            weighted: word >> 38 & 1 == 1,
            generation: (word >> 40) as u32,
        }
    }
}

/// The second word of a slot, unpacked: one store switches the whole set of backends. Bits: offset 0-23, count 24-39,
/// leaving 40-55, generation 56-63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Where the set begins in the arena, in ids.
    pub offset: u32,
    /// How many backends new connections may go to.
    pub count: u16,
    /// How many follow them that only keep the connections they have.
    pub leaving: u16,
    /// Counts the changes of the set, modulo 2^8.
    pub generation: u8,
}

impl Set {
    /// As it lies in the map.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        (self.offset & 0xff_ffff) as u64
            | (self.count as u64) << 24
            | (self.leaving as u64) << 40
            | (self.generation as u64) << 56
    }

    /// From the map.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field is cut to its own bits"
    )]
    pub const fn unpack(word: u64) -> Self {
        Self {
            offset: (word & 0xff_ffff) as u32,
            count: (word >> 24) as u16,
            leaving: (word >> 40) as u16,
            generation: (word >> 56) as u8,
        }
    }
}

/// What the kernel tells the agent about a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// The first packet to a sleeping VIP.
    Wake = 1,
    /// The first packet to a VIP that the node does not follow.
    Miss = 2,
}

/// The event that a packet raises, given what the kernel `noted` in `touch` so far.
///
/// The kernel notes [`noted`] of the sleep for which it raised an event, so nobody ever has to clear the note: the agent
/// counts the generation up when the next sleep begins.
#[inline(always)]
pub fn wakes(route: Route, noted_before: u64) -> Option<EventKind> {
    if noted_before == noted(route) {
        None
    } else if !route.present {
        Some(EventKind::Miss)
    } else if route.asleep && !route.gone {
        Some(EventKind::Wake)
    } else {
        None
    }
}

/// The note for "an event was raised in this generation"; never 0, which is a VIP without any.
#[inline(always)]
pub const fn noted(route: Route) -> u64 {
    route.generation as u64 + 1
}

#[cfg(test)]
mod tests;
