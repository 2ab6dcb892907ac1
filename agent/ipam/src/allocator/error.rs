//! Why no address can be given, and what would help.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ipv4::Ipv4Range;
use crate::lane::{ALIASES, COHORT_PODS_MAX, COHORTS};
use crate::lease::{KEY_LEN_MAX, LeaseKey};
use crate::prefix::NodePrefix;

/// Why no address can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The attachment already has one.
    #[error("{key} already holds {address}")]
    Held {
        /// The attachment.
        key: LeaseKey,
        /// The address it holds.
        address: Ipv6Addr,
    },
    /// The attachment's names are longer than a record of the journal holds.
    #[error(
        "network, container and interface have {length} bytes together; at most {KEY_LEN_MAX} are stored"
    )]
    KeyTooLong {
        /// Their length in bytes.
        length: usize,
    },
    /// The requested address lies elsewhere.
    #[error(
        "requested address {address} is not one that may be requested from {prefix}: {first} to {last} are"
    )]
    OutOfRange {
        /// The address asked for.
        address: Ipv6Addr,
        /// The node's prefix.
        prefix: NodePrefix,
        /// First address that may be requested.
        first: Ipv6Addr,
        /// Last address that may be requested.
        last: Ipv6Addr,
    },
    /// The requested address says that the pod is something else than it is.
    #[error(
        "requested address {address} names cohort {named}, but the pod's cohort is {own}: request one of cohort 0 or {own}, with a number of at least 1"
    )]
    OtherCohort {
        /// The address asked for.
        address: Ipv6Addr,
        /// The cohort that it names.
        named: u32,
        /// The pod's cohort.
        own: u32,
    },
    /// The cohort is none that a pod may have.
    #[error("cohort {0} is reserved: pods have {first} to {last}", first = COHORTS.start(), last = COHORTS.end())]
    ReservedCohort(u32),
    /// A cohort was given, but there are no bits for it.
    #[error("{prefix} is too narrow to name cohorts: give the node a /96, or ask without a cohort")]
    NoCohorts {
        /// The node's prefix.
        prefix: NodePrefix,
    },
    /// Someone else holds the requested address.
    #[error("requested address {address} is held by {}", holder.as_ref().map_or("an attachment that is being added".to_owned(), ToString::to_string))]
    Taken {
        /// The address asked for.
        address: IpAddr,
        /// Who holds it; none if a claim of it is being written.
        holder: Option<LeaseKey>,
    },
    /// The requested address was released a moment ago.
    #[error("requested address {address} rests for another {left_ms} ms after its release")]
    Resting {
        /// The address asked for.
        address: IpAddr,
        /// Rest that is left, in milliseconds.
        left_ms: u128,
    },
    /// All are held or rest.
    #[error("no address left in {prefix}: {held} held, {resting} resting")]
    Exhausted {
        /// The node's prefix.
        prefix: NodePrefix,
        /// Addresses held.
        held: usize,
        /// Addresses that rest.
        resting: usize,
    },
    /// All numbers of the cohort are held or rest.
    #[error(
        "no number left in cohort {cohort} and its {ALIASES} aliases: all {COHORT_PODS_MAX} of this node are held or rest"
    )]
    CohortExhausted {
        /// The pod's cohort.
        cohort: u32,
    },
    /// IPv4 was asked for on a node without.
    #[error(
        "{}the node has no IPv4 range to give an address from: configure one, or ask for IPv6 only",
        wanted.map_or_else(String::new, |address| format!("requested address {address}: "))
    )]
    NoIpv4Range {
        /// The address asked for, if it was a certain one.
        wanted: Option<Ipv4Addr>,
    },
    /// The requested IPv4 address lies elsewhere.
    #[error("requested address {address} is not one of {range}, or is its gateway")]
    OutOfIpv4Range {
        /// The address asked for.
        address: Ipv4Addr,
        /// The node's range.
        range: Ipv4Range,
    },
    /// All IPv4 addresses are held or rest.
    #[error(
        "no IPv4 address left in {range}: {resting} of them rest; widen the range or run fewer pods"
    )]
    Ipv4Exhausted {
        /// The node's range.
        range: Ipv4Range,
        /// Addresses that rest.
        resting: usize,
    },
}
