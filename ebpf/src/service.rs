//! Slots: a slot is one frontend's forwarding state in two words, [`Route`] and [`Set`]. Each word changes with one aligned
//! store, so no reader sees half a change.
//!
//! An app has one slot, found by its VIP alone. A service port has one slot for its cluster IP, one for its external
//! addresses, and, where policy Local treats internal clients otherwise, one for pods and the node at these addresses.

use crate::packet;

/// Slots that are found by an address's index in its range: those of apps and of cluster IPs.
pub const VIPS_MAX: u32 = 1 << 20;

/// All slots: those found by index, then those found by address and port in the map `frontend`.
pub const SLOTS_MAX: u32 = VIPS_MAX + (1 << 17);

/// Backend ids in the arena of backend sets, the map `backend_set`.
pub const SETS_MAX: u32 = 1 << 22;

/// Backend ids in one row of the arena, as the map has it; extents begin at rows, sets anywhere in them.
pub const ROW_LEN: u32 = 16;

/// New connections are drawn from `0..SHARE_WHOLE`; a share says how many of them go to an activator.
pub const SHARE_WHOLE: u8 = 255;

const _: () = assert!(SETS_MAX <= 1 << 24, "an offset has 24 bits in the set word");

/// A slot, a row of the map `svc`. Written by the agent only, one word at a time; all zero is a VIP that the node does not
/// follow.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// A packed [`Route`].
    pub route: u64,
    /// A packed [`Set`].
    pub set: u64,
}

/// The way a slot handles new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Forwards them to an activator.
    #[default]
    Proxy = 0,
    /// Forwards them to a backend of the slot's set.
    Serve = 1,
    /// Rejects them: port unreachable, or a TCP reset.
    Reject = 2,
    /// Drops them silently.
    Drop = 3,
}

/// The sources that a slot masquerades: the node's address replaces theirs when a packet leaves the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Masquerade {
    /// None.
    #[default]
    None = 0,
    /// All that are no pods; pods too with `--masquerade-all`.
    External = 1,
    /// All.
    All = 2,
    /// The node's own addresses.
    Node = 3,
}

/// A slot's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// Any protocol: an app's VIP.
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

    /// Its IP protocol number; 0: any.
    #[inline(always)]
    pub const fn number(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Tcp => packet::TCP,
            Self::Udp => packet::UDP,
            Self::Sctp => packet::SCTP,
        }
    }
}

/// The owner of a slot, and the fields of [`Route`] whose bits mean different things for apps and for Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An app; also a slot without an owner.
    App {
        /// Of [`SHARE_WHOLE`] new connections in [`Mode::Serve`], how many go to an activator.
        share: u8,
        /// The sleep generation: counts the sleeps of this VIP on this node modulo 2^24, so that the kernel raises one event
        /// in each.
        sleep: u32,
    },
    /// A Kubernetes Service. Only agents read these fields.
    Service {
        /// The slot's role in its group.
        role: u8,
        /// The first slot of the service port's group of slots; none: the address is a cluster IP without a group here.
        group: Option<u32>,
    },
}

impl Default for Owner {
    fn default() -> Self {
        Self::NONE
    }
}

impl Owner {
    /// No owner.
    pub const NONE: Self = Self::App { share: 0, sleep: 0 };

    /// The bits of the word: whether it is a Service, the small field, the large field.
    #[inline(always)]
    const fn pack(self) -> u64 {
        let (service, small, large) = match self {
            Self::App { share, sleep } => (0, share, sleep),
            Self::Service { role, group: None } => (1, role, 0),
            Self::Service {
                role,
                group: Some(group),
            } => (1, role, group.wrapping_add(1)),
        };
        (small as u64) << 2 | service << 14 | ((large & 0xff_ffff) as u64) << 40
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field is cut to its own bits"
    )]
    const fn unpack(word: u64) -> Self {
        let (small, large) = ((word >> 2) as u8, (word >> 40) as u32);
        if word >> 14 & 1 == 0 {
            Self::App {
                share: small,
                sleep: large,
            }
        } else {
            Self::Service {
                role: small,
                group: large.checked_sub(1),
            }
        }
    }
}

/// The first word of a slot, unpacked. Bits: mode 0-1, share or role 2-9, leased 10, asleep 11, present 12, gone 13,
/// service 14, affinity 15, port 16-31, protocol 32-33, masquerade 34-35, split 36, local 37, weighted 38, sleep or group + 1
/// 40-63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one bit of the word, set independently"
)]
pub struct Route {
    /// The way the slot handles new connections.
    pub mode: Mode,
    /// Of an app: past the end of the node lease the slot acts as in [`Mode::Proxy`].
    pub leased: bool,
    /// Of an app: it has no pod, and its first packet raises a wake event.
    pub asleep: bool,
    /// The node follows this VIP.
    pub present: bool,
    /// Of an app: control has no such VIP, so no event is raised.
    pub gone: bool,
    /// Of a Service: it has session affinity, see [`crate::maps::SlotOptions`].
    pub affinity: bool,
    /// The frontend's port; 0: any.
    pub port: u16,
    /// The frontend's protocol.
    pub protocol: Protocol,
    /// Of a Service: the sources that are masqueraded.
    pub masquerade: Masquerade,
    /// Of a Service: pods and the node itself use [`crate::maps::SlotOptions::internal_slot`].
    pub split: bool,
    /// Of a Service: the set holds the backends of traffic policy Local.
    pub local: bool,
    /// The backends' weights differ.
    pub weighted: bool,
    /// The owner, with the fields that depend on it.
    pub owner: Owner,
}

impl Route {
    /// A VIP that the node does not follow.
    pub const ABSENT: Self = Self {
        mode: Mode::Proxy,
        leased: false,
        asleep: false,
        present: false,
        gone: false,
        affinity: false,
        port: 0,
        protocol: Protocol::Any,
        masquerade: Masquerade::None,
        split: false,
        local: false,
        weighted: false,
        owner: Owner::NONE,
    };

    /// Whether the slot is a Service's.
    #[inline(always)]
    pub const fn is_service(self) -> bool {
        matches!(self.owner, Owner::Service { .. })
    }

    /// The share of an app's new connections that go to an activator; 0 for a Service.
    #[inline(always)]
    pub const fn share(self) -> u8 {
        match self.owner {
            Owner::App { share, .. } => share,
            Owner::Service { .. } => 0,
        }
    }

    /// The sleep generation of an app; 0 for a Service.
    #[inline(always)]
    pub const fn sleep(self) -> u32 {
        match self.owner {
            Owner::App { sleep, .. } => sleep,
            Owner::Service { .. } => 0,
        }
    }

    /// The group of a Service's slot; none for an app.
    #[inline(always)]
    pub const fn group(self) -> Option<u32> {
        match self.owner {
            Owner::App { .. } => None,
            Owner::Service { group, .. } => group,
        }
    }

    /// As it lies in the map.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        self.mode as u64
            | (self.leased as u64) << 10
            | (self.asleep as u64) << 11
            | (self.present as u64) << 12
            | (self.gone as u64) << 13
            | (self.affinity as u64) << 15
            | (self.port as u64) << 16
            | (self.protocol as u64) << 32
            | (self.masquerade as u64) << 34
            | (self.split as u64) << 36
            | (self.local as u64) << 37
            | (self.weighted as u64) << 38
            | self.owner.pack()
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
            leased: word >> 10 & 1 == 1,
            asleep: word >> 11 & 1 == 1,
            present: word >> 12 & 1 == 1,
            gone: word >> 13 & 1 == 1,
            affinity: word >> 15 & 1 == 1,
            port: (word >> 16) as u16,
            protocol: match word >> 32 & 3 {
                0 => Protocol::Any,
                1 => Protocol::Tcp,
                2 => Protocol::Udp,
                _ => Protocol::Sctp,
            },
            masquerade: match word >> 34 & 3 {
                0 => Masquerade::None,
                1 => Masquerade::External,
                2 => Masquerade::All,
                _ => Masquerade::Node,
            },
            split: word >> 36 & 1 == 1,
            local: word >> 37 & 1 == 1,
            weighted: word >> 38 & 1 == 1,
            owner: Owner::unpack(word),
        }
    }
}

/// The second word of a slot, unpacked: one store switches the whole set of backends. Bits: offset 0-23, count 24-39,
/// leaving 40-55, version 56-63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The index of the set's first id in the arena.
    pub offset: u32,
    /// Backends that new connections may go to.
    pub count: u16,
    /// Backends behind them that drain: they only keep the connections that they have.
    pub leaving: u16,
    /// Counts the changes of the set, modulo 2^8.
    pub version: u8,
}

impl Set {
    /// As it lies in the map.
    #[inline(always)]
    pub const fn pack(self) -> u64 {
        (self.offset & 0xff_ffff) as u64
            | (self.count as u64) << 24
            | (self.leaving as u64) << 40
            | (self.version as u64) << 56
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
            version: (word >> 56) as u8,
        }
    }
}

/// An event that the kernel raises for a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// The first packet to a sleeping VIP.
    Wake = 1,
    /// The first packet to a VIP that the node does not follow.
    Miss = 2,
}

/// The port and the protocol that a packet is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The destination port.
    pub port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl Route {
    /// Whether the frontend has this port and protocol.
    #[inline(always)]
    pub const fn serves(self, target: Target) -> bool {
        let any = matches!(self.protocol, Protocol::Any);
        (self.port == 0 || self.port == target.port)
            && (any || self.protocol as u8 == Protocol::of(target.protocol) as u8)
    }
}

/// The event that a packet raises, given the VIP's word in the map `touch`. A sleeping app is woken by packets to its own
/// port and protocol; those of a VIP without an entry are known to control only.
///
/// The kernel stores [`noted`] there when it raises an event. The word is never cleared: the agent increments the sleep
/// generation when the next sleep begins.
#[inline(always)]
pub fn wakes(route: Route, noted_before: u64, target: Target) -> Option<EventKind> {
    if noted_before == noted(route) {
        None
    } else if !route.present {
        Some(EventKind::Miss)
    } else if route.asleep && !route.gone && route.serves(target) {
        Some(EventKind::Wake)
    } else {
        None
    }
}

/// The word in `touch` that says that an event was raised for this sleep; never 0, which is a VIP without any event.
#[inline(always)]
pub const fn noted(route: Route) -> u64 {
    route.sleep() as u64 + 1
}

#[cfg(test)]
mod tests;
