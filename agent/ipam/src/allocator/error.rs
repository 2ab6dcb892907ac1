//! Errors of allocation, each with its remedy where there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ipv4::Ipv4Range;
use crate::lane::{ALIASES, COHORT_PODS_MAX, COHORTS};
use crate::lease::{KEY_LEN_MAX, LeaseKey};
use crate::prefix::NodePrefix;

/// An address cannot be leased.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The attachment already has an address.
    #[error("{key} already holds {address}")]
    Held {
        /// The attachment.
        key: LeaseKey,
        /// Its address.
        address: Ipv6Addr,
    },
    /// The attachment's names are longer than a journal record can hold.
    #[error(
        "network, container and interface have {length} bytes together; at most {KEY_LEN_MAX} are stored"
    )]
    KeyTooLong {
        /// Their length in bytes.
        length: usize,
    },
    /// The requested address is outside the range of addresses that may be requested.
    #[error(
        "address {address} of {prefix} cannot be requested: request one from {first} to {last}"
    )]
    OutOfRange {
        /// The requested address.
        address: Ipv6Addr,
        /// The node's prefix.
        prefix: NodePrefix,
        /// First address that may be requested.
        first: Ipv6Addr,
        /// Last address that may be requested.
        last: Ipv6Addr,
    },
    /// The requested address contains another cohort than the pod's.
    #[error(
        "requested address {address} is of cohort {address_cohort}, but the pod's cohort is {pod_cohort}: request one of cohort 0 or {pod_cohort}, with a number of at least 1"
    )]
    OtherCohort {
        /// The requested address.
        address: Ipv6Addr,
        /// The cohort in the address.
        address_cohort: u32,
        /// The pod's cohort.
        pod_cohort: u32,
    },
    /// The cohort is outside the range that pods may have.
    #[error("cohort {0} is reserved: pods have {first} to {last}", first = COHORTS.start(), last = COHORTS.end())]
    ReservedCohort(u32),
    /// A cohort was given, but the prefix leaves no bits for it.
    #[error("{prefix} is too narrow to name cohorts: give the node a /96, or ask without a cohort")]
    NoCohorts {
        /// The node's prefix.
        prefix: NodePrefix,
    },
    /// Another attachment holds the requested address.
    #[error("requested address {address} is held by {}", holder.as_ref().map_or("an attachment that is being added".to_owned(), ToString::to_string))]
    Taken {
        /// The requested address.
        address: IpAddr,
        /// The holder; `None` while its lease is being written.
        holder: Option<LeaseKey>,
    },
    /// The requested address was released recently.
    #[error(
        "requested address {address} was released recently and is in quarantine for another {left_ms} ms"
    )]
    Quarantined {
        /// The requested address.
        address: IpAddr,
        /// Remaining quarantine, in milliseconds.
        left_ms: u128,
    },
    /// All addresses are leased.
    #[error("no address left in {prefix}: {held} leased")]
    Exhausted {
        /// The node's prefix.
        prefix: NodePrefix,
        /// Leased addresses.
        held: usize,
    },
    /// All numbers of the cohort are leased.
    #[error(
        "no number left in cohort {cohort} and its {ALIASES} aliases: all {COHORT_PODS_MAX} of this node are leased"
    )]
    CohortExhausted {
        /// The pod's cohort.
        cohort: u32,
    },
    /// IPv4 was requested on a node without an IPv4 range.
    #[error(
        "{}the node has no IPv4 range: configure one, or request IPv6 only",
        wanted.map_or_else(String::new, |address| format!("requested address {address}: "))
    )]
    NoIpv4Range {
        /// The requested address, if a specific one was requested.
        wanted: Option<Ipv4Addr>,
    },
    /// The requested IPv4 address is outside the range.
    #[error("requested address {address} is not one of {range}, or is its gateway")]
    OutOfIpv4Range {
        /// The requested address.
        address: Ipv4Addr,
        /// The node's range.
        range: Ipv4Range,
    },
    /// All IPv4 addresses are leased.
    #[error("no IPv4 address left in {range}: widen the range or run fewer pods")]
    Ipv4Exhausted {
        /// The node's range.
        range: Ipv4Range,
    },
}
