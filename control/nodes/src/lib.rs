//! Checks of what nodes claim: their prefixes, addresses and labels, and the addresses of their pods. Pure.
//!
//! Reading order: networks ([`Prefix`]), the addresses that a host can have at all ([`unusable`]), the claims of the nodes that live
//! ([`Claims`]), the addresses of a node's pods ([`Place`]), and [`labels`].

#![forbid(unsafe_code)]

mod address;
mod claims;
pub mod labels;
mod place;
mod prefix;

pub use address::unusable;
pub use claims::{Claim, Claims, Refused};
pub use place::{AddressError, Place};
pub use prefix::Prefix;
