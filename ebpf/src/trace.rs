//! What a decision says of itself when it is explained: one step each, in the order in which they were taken.
//!
//! The programs write steps only where they were loaded to explain; outside of the kernel the same decision tells them.

use crate::config::Config;
use crate::decide::Tables;
use crate::maps::{Backend, Extra, ForeignKey, Sticky, StickyKey};
use crate::service::Set;

/// Steps that one packet can take; later ones are lost.
pub const STEPS_MAX: u32 = 64;

macro_rules! steps {
    ($($name:ident = $number:literal $doc:literal),* $(,)?) => {
        /// What was decided.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Step { $(#[doc = $doc] $name = $number),* }

        impl Step {
            /// The step of that number.
            pub fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

steps! {
    ClusterIp = 1 "The target is a cluster IP with a slot of its own: the slot.",
    Address = 2 "The target is found by address and port: the slot, and whether source ranges come first.",
    Route = 3 "The slot that answers: which, and its first word.",
    Kept = 4 "The client keeps its backend: its id.",
    Set = 5 "The backends of the slot: which, and its second word.",
    Picked = 6 "The backend: its id, and 1 if every node picks the same, 0 if it was drawn.",
    Direct = 7 "The packet is led past the host's own forwarding: out by which interface, and 1 if that is a pod's link.",
}

/// Tables whose decisions are told to somebody: not all programs have room for that.
#[derive(Clone, Copy, Debug)]
pub struct Telling<T, F>(pub T, pub F);

macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[inline(always)]
        fn $name(&self, $($argument: $type),*) -> $result {
            self.0.$name($($argument),*)
        }
    )* };
}

impl<T: Tables, F: Fn(Step, u64, u64)> Tables for Telling<T, F> {
    pass_on! {
        config() -> Option<&Config>;
        route(slot: u32) -> Option<u64>;
        set(slot: u32) -> Option<u64>;
        id(place: u32) -> Option<u32>;
        backend(id: u32) -> Option<Backend>;
        prefix(id: u32) -> Option<[u8; 16]>;
        filter(word: u32) -> u64;
        foreign(key: &ForeignKey) -> Option<u32>;
        extra(slot: u32) -> Option<Extra>;
        admits(slot: u32, source: &[u8; 16]) -> bool;
        sticky(key: &StickyKey) -> Option<Sticky>;
        lease_until_ns() -> u64;
        now_ns() -> u64;
        favourite(set: Set, hash: u64) -> Option<u32>;
    }

    #[inline(always)]
    fn tell(&self, step: Step, first: u64, second: u64) {
        self.1(step, first, second);
    }
}

/// A step as it lies in the map. Place 0 holds how many follow, in `step`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// One of [`Step`].
    pub step: u32,
    /// Zero.
    pub pad: u32,
    /// What it says of the step: see there.
    pub values: [u64; 2],
}

#[cfg(not(target_arch = "bpf"))]
// SAFETY: `repr(C)`, `Copy`, no references, no hidden padding, valid for every bit pattern.
unsafe impl aya::Pod for Told {}
