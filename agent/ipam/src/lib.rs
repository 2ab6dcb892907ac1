//! IP address management of one node: the allocator of pod addresses and the journal of its leases. A crash at any
//! moment neither leaks an address nor leases one twice.
//!
//! Reading order: addresses ([`prefix`], [`ipv4`]), their holders ([`lease`]), the ranges of numbers ([`lane`]) and
//! the order in which they are drawn ([`order`]), allocation ([`allocator`], pure: time is an argument), the file
//! ([`record`], [`journal`]), and allocator and journal joined ([`leases`]).

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
