//! Traces of decisions, for `explain`: one record for each step, in order.
//!
//! Programs write them only if they were loaded to explain; in user space the same decision passes them to a function.

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
