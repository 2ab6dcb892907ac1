//! Hands out the addresses of a node's prefix and remembers durably who holds each, so that a crash neither leaks
//! an address nor gives one out twice.
//!
//! Reading order: what an address is ([`prefix`], [`ipv4`]), who holds it ([`lease`]), what numbers are drawn from
//! ([`lane`]) and in which order ([`order`]), the choice ([`allocator`], pure: time is an argument), the bytes on disk
//! ([`record`], [`journal`]), and the two joined ([`leases`]).

#![forbid(unsafe_code)]

pub mod allocator;
pub mod ipv4;
pub mod journal;
pub mod lane;
pub mod lease;
pub mod leases;
pub mod order;
mod pool;
pub mod prefix;
pub mod record;

pub use allocator::{AllocateError, Allocator, Ipv4Wish, Request, Usage};
pub use ipv4::{Ipv4Range, Ipv4RangeError};
pub use lease::{BootId, Lease, LeaseKey, NetnsId, State};
pub use leases::{Leases, LeasesError, Opening, Writes};
pub use order::Secret;
pub use prefix::{NodePrefix, PrefixError, Suffix};
