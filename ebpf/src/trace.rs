//! Traces of decisions, for `explain`: one record for each step, in order.
//!
//! Programs write them only if they were loaded to explain; in user space the same decision passes them to a function.

use crate::config::Config;
use crate::decide::Tables;
use crate::maps::{Affinity, AffinityKey, Backend, FrontendKey, SlotOptions};
use crate::service::Set;

/// Steps that one packet can take; later ones are lost.
pub const STEPS_MAX: u32 = 64;

macro_rules! steps {
    ($($name:ident = $number:literal $doc:literal),* $(,)?) => {
        /// A step of a decision.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Step { $(#[doc = $doc] $name = $number),* }

        impl Step {
            /// The step with this number.
            pub fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

steps! {
    ClusterIp = 1 "The target is a cluster IP with a slot by its index: the slot.",
    Frontend = 2 "The target is a frontend found by address and port: the slot, and 1 if it has source ranges.",
    Route = 3 "The slot that decides: its number, and its first word.",
    Affinity = 4 "Session affinity selected the backend: its id.",
    Set = 5 "The slot's backend set: the slot, and its second word.",
    Picked = 6 "The selected backend: its id, and 1 if by rendezvous hashing, 0 if at random.",
    Direct = 7 "The packet bypasses the host's forwarding: the interface it leaves by, and 1 if that is a pod's link.",
}

/// Tables whose decisions are traced by a function: not all programs have stack for that.
#[derive(Clone, Copy, Debug)]
pub struct Traced<T, F>(pub T, pub F);

macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[inline(always)]
        fn $name(&self, $($argument: $type),*) -> $result {
            self.0.$name($($argument),*)
        }
    )* };
}

impl<T: Tables, F: Fn(Step, u64, u64)> Tables for Traced<T, F> {
    delegate! {
        config() -> Option<&Config>;
        route(slot: u32) -> Option<u64>;
        set(slot: u32) -> Option<u64>;
        id(place: u32) -> Option<u32>;
        backend(id: u32) -> Option<Backend>;
        prefix(id: u32) -> Option<[u8; 16]>;
        frontend_filter(word: u32) -> u64;
        frontend(key: &FrontendKey) -> Option<u32>;
        slot_options(slot: u32) -> Option<SlotOptions>;
        in_source_range(slot: u32, source: &[u8; 16]) -> bool;
        affinity(key: &AffinityKey) -> Option<Affinity>;
        lease_until_ns() -> u64;
        now_ns() -> u64;
        rendezvous(set: Set, hash: u64) -> Option<u32>;
    }

    #[inline(always)]
    fn trace(&self, step: Step, first: u64, second: u64) {
        self.1(step, first, second);
    }
}

/// A step in the map `trace`. The record at index 0 holds the number of records that follow, in `step`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// One of [`Step`].
    pub step: u32,
    /// Zero.
    pub pad: u32,
    /// The step's two values: see [`Step`].
    pub values: [u64; 2],
}

#[cfg(not(target_arch = "bpf"))]
// SAFETY: `repr(C)`, `Copy`, no references, no hidden padding, valid for every bit pattern.
unsafe impl aya::Pod for StepRecord {}
