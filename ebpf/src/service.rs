//! What a node knows of one VIP, in two words that each change by one aligned store: no reader ever sees half a change.

/// VIP indexes that the maps hold: all ranges together.
pub const VIPS_MAX: u32 = 1 << 20;

/// Backend ids in the arena of sets.
pub const SETS_MAX: u32 = 1 << 22;

/// Backend ids in one row of the arena; a set begins at a row's begin.
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

/// Where a VIP leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To an activator.
    Proxy,
    /// Straight to the backends.
    Serve,
}

/// The first word of an entry, unpacked. Bits: mode 0-1, share 2-9, leased 10, asleep 11, present 12, gone 13,
/// port 16-31, generation 32-63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one bit of the word, set independently"
)]
pub struct Route {
    /// Where the VIP leads.
    pub mode: Mode,
    /// Of [`SHARE_WHOLE`] new connections in [`Mode::Serve`], how many go to an activator all the same.
    pub share: u8,
    /// Past the end of the node lease the entry acts as [`Mode::Proxy`].
    pub leased: bool,
    /// Nobody is behind the VIP: its first packet raises a wake event.
    pub asleep: bool,
    /// The node follows this VIP.
    pub present: bool,
    /// There is no such VIP, as control says.
    pub gone: bool,
    /// The VIP's port; 0: any.
    pub port: u16,
    /// Counts the sleeps of this VIP on this node, so that the kernel raises one event in each.
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
        port: 0,
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
            | (self.port as u64) << 16
            | (self.generation as u64) << 32
    }

    /// From the map.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field is cut to its own bits"
    )]
    pub const fn unpack(word: u64) -> Self {
        Self {
            mode: if word & 3 == Mode::Serve as u64 {
                Mode::Serve
            } else {
                Mode::Proxy
            },
            share: (word >> 2) as u8,
            leased: word >> 10 & 1 == 1,
            asleep: word >> 11 & 1 == 1,
            present: word >> 12 & 1 == 1,
            gone: word >> 13 & 1 == 1,
            port: (word >> 16) as u16,
            generation: (word >> 32) as u32,
        }
    }
}

/// The second word of an entry, unpacked: one store switches the whole set of backends. Bits: offset 0-23, count 24-39,
/// generation 40-63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Where the set begins in the arena, in ids.
    pub offset: u32,
    /// How many backends it has.
    pub count: u16,
    /// Counts the changes of the set, modulo 2^24.
    pub generation: u32,
}

impl Set {
    /// As it lies in the map.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        (self.offset & 0xff_ffff) as u64
            | (self.count as u64) << 24
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
            offset: (word & 0xff_ffff) as u32,
            count: (word >> 24) as u16,
            generation: (word >> 40) as u32,
        }
    }
}

/// Where a new connection goes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To a backend.
    Serve,
    /// To an activator: the entry says so, or there is none.
    Proxy,
    /// To an activator: the node lease is over.
    LeaseOver,
    /// To an activator: its share of a VIP that is served.
    Share,
}

/// Decides a new connection at `now_ns`; `draw` is uniform in `0..SHARE_WHOLE`.
#[inline(always)]
pub fn decide(route: Route, lease_until_ns: u64, now_ns: u64, draw: u8) -> Decision {
    if !matches!(route.mode, Mode::Serve) || !route.present {
        Decision::Proxy
    } else if route.leased && now_ns >= lease_until_ns {
        Decision::LeaseOver
    } else if draw < route.share {
        Decision::Share
    } else {
        Decision::Serve
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
