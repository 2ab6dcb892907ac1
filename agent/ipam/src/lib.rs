//! Hands out the addresses of a node's prefix and remembers durably who holds each, so that a crash neither leaks
//! an address nor gives one out twice.
//!
//! Reading order: what an address is ([`prefix`]), who holds it ([`lease`]), the choice ([`allocator`], pure: time is
//! an argument), the bytes on disk ([`record`], [`journal`]), and the two joined ([`leases`]).

#![forbid(unsafe_code)]

pub mod allocator;
pub mod journal;
pub mod lease;
pub mod leases;
pub mod prefix;
pub mod record;

pub use allocator::{AllocateError, Allocator};
pub use lease::{BootId, Lease, LeaseKey, NetnsId, State};
pub use leases::{Leases, LeasesError};
pub use prefix::{NodePrefix, PrefixError, Suffix};
