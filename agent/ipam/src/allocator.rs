//! The allocator: chooses free addresses in constant time, and one in quarantine only when no other is left. Pure: time is
//! an argument and every change is a [`Record`], so a replayed journal gives the same allocator.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::ipv4::Ipv4Range;
use crate::lease::{Lease, LeaseKey, NetnsId, State};
use crate::order::Order;
use crate::pool::{Pool, Space};
use crate::prefix::{NodePrefix, Suffix};
use crate::record::Record;

mod choice;
mod ended;
mod error;
#[cfg(test)]
mod tests;

use ended::Ended;
pub use error::AllocateError;

/// Default quarantine of a released address. A node that is cut off from control and activators connects to the backends
/// that it knew last: for this long a removed pod's address refuses it, on every node, and is never another tenant's.
pub const QUARANTINE_DEFAULT: Duration = Duration::from_hours(1);
/// Longest time after a release in which the same address cannot be requested by another attachment: late packets to its former holder do not
/// reach the next one. A client that requests an address knows whose it was.
pub const REQUEST_QUARANTINE_MAX: Duration = Duration::from_mins(1);

/// A request for the addresses of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The attachment.
    pub key: LeaseKey,
    /// The pod's namespace.
    pub netns: NetnsId,
    /// A specific address; `None`: the next free one.
    pub address: Option<Ipv6Addr>,
    /// The pod's cohort, which its address then contains.
    pub cohort: Option<u32>,
    /// Whether and which IPv4 address.
    pub ipv4: Ipv4Wish,
    /// Whether the agent creates the pod's link; see [`Lease::wired`].
    pub wired: bool,
}

/// A request for an IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv4Wish {
    /// No IPv4 address.
    #[default]
    None,
    /// The next free address.
    Any,
    /// This address.
    Exactly(Ipv4Addr),
}

impl Request {
    /// The next free IPv6 address without a cohort, for a pod that the agent wires.
    pub fn new(key: LeaseKey, netns: NetnsId) -> Self {
        Self {
            key,
            netns,
            address: None,
            cohort: None,
            ipv4: Ipv4Wish::None,
            wired: true,
        }
    }
}

/// Number of addresses of the node's prefix by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Leased.
    pub held: u64,
    /// Released, and not yet free again.
    pub quarantined: u64,
    /// Free for pods without a cohort.
    pub free: u64,
}

/// The leases and quarantined addresses of one node. A chosen address is first *claimed*, which excludes it from other
/// requests, and becomes a lease when its record is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocator {
    prefix: NodePrefix,
    range4: Option<Ipv4Range>,
    suffixes: Pool,
    addresses4: Option<Pool>,
    leases: HashMap<Suffix, Arc<Lease>>,
    /// Of leases and claims.
    keys: HashMap<LeaseKey, Suffix>,
    ended: Ended,
}

impl Allocator {
    /// An allocator without leases. Released addresses stay in quarantine for `quarantine`, unless no other is left, oldest
    /// first; suffixes are drawn in `order`, IPv4 addresses in ascending order.
    pub fn new(
        prefix: NodePrefix,
        range4: Option<Ipv4Range>,
        order: Order,
        quarantine: Duration,
    ) -> Self {
        let pool4 = |range| Pool::new(Space::Ipv4(range), Order::Counting, quarantine);
        Self {
            prefix,
            range4,
            suffixes: Pool::new(Space::Suffixes(prefix), order, quarantine),
            addresses4: range4.map(pool4),
            leases: HashMap::new(),
            keys: HashMap::new(),
            ended: Ended::default(),
        }
    }

    /// The node's prefix.
    pub fn prefix(&self) -> NodePrefix {
        self.prefix
    }

    /// All leases, in no order.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = &Arc<Lease>> {
        self.leases.values()
    }

    /// The lease of an attachment.
    pub fn lease(&self, key: &LeaseKey) -> Option<&Arc<Lease>> {
        self.keys
            .get(key)
            .and_then(|suffix| self.leases.get(suffix))
    }

    /// Whether an address is leased.
    pub fn holds(&self, suffix: Suffix) -> bool {
        self.leases.contains_key(&suffix)
    }

    /// Applies one change; a change of an unknown lease is ignored.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Header { .. } => {}
            Record::Reserve(lease) => self.insert(lease),
            Record::Live(suffix) => self.set_state(*suffix, State::Live),
            Record::Release(suffix) => self.set_state(*suffix, State::Releasing),
            Record::Free(suffix, at) => self.free(*suffix, *at),
            Record::Cursor(suffix) => self.suffixes.set_cursor(suffix.0),
            Record::QuarantineIpv4(address, at) => self.quarantine4(*address, *at),
            Record::CursorIpv4(address) => {
                if let Some(pool) = &mut self.addresses4 {
                    pool.set_cursor(address.to_bits());
                }
            }
        }
    }

    /// The shortest list of records that turns an empty allocator into this one, without its claims.
    pub fn snapshot(&self) -> Vec<Record> {
        let suffixes = &self.suffixes;
        let mut records = Vec::with_capacity(self.leases.len() + suffixes.quarantined_count() + 1);
        records.extend(
            suffixes
                .quarantined()
                .map(|(n, at)| Record::Free(Suffix(n), at)),
        );
        if let Some(pool) = &self.addresses4 {
            let quarantined = pool
                .quarantined()
                .map(|(n, at)| (Ipv4Addr::from_bits(n), at));
            records.extend(quarantined.map(|(address, at)| Record::QuarantineIpv4(address, at)));
        }
        records.extend(self.leases.values().cloned().map(Record::Reserve));
        records.extend(suffixes.cursors().map(|n| Record::Cursor(Suffix(n))));
        if let Some(pool) = &self.addresses4 {
            let next = pool.cursors().map(Ipv4Addr::from_bits);
            records.extend(next.map(Record::CursorIpv4));
        }
        records
    }

    /// The allocator after a reboot: the cursors without leases and quarantined addresses.
    #[must_use]
    pub fn after_reboot(&self) -> Self {
        Self {
            prefix: self.prefix,
            range4: self.range4,
            suffixes: self.suffixes.after_reboot(),
            addresses4: self.addresses4.as_ref().map(Pool::after_reboot),
            leases: HashMap::new(),
            keys: HashMap::new(),
            ended: Ended::default(),
        }
    }

    fn insert(&mut self, lease: &Arc<Lease>) {
        self.expire(lease.since);
        if self.keys.get(&lease.key) != Some(&lease.suffix) {
            self.hold(lease);
        }
        self.leases.insert(lease.suffix, Arc::clone(lease));
    }

    fn set_state(&mut self, suffix: Suffix, state: State) {
        if let Some(lease) = self.leases.get_mut(&suffix) {
            Arc::make_mut(lease).state = state;
        }
    }

    fn free(&mut self, suffix: Suffix, at: Duration) {
        let Some(lease) = self.leases.remove(&suffix) else {
            return self.quarantine_unheld(suffix, at);
        };
        self.keys.remove(&lease.key);
        self.ended.push(&lease);
        self.suffixes.quarantine(suffix.0, at);
        if let Some(address) = lease.ipv4 {
            self.quarantine4(address, at);
        }
    }

    fn quarantine4(&mut self, address: Ipv4Addr, at: Duration) {
        if let Some(pool) = &mut self.addresses4 {
            pool.quarantine(address.to_bits(), at);
        }
    }

    /// Frees addresses whose quarantine has ended.
    fn expire(&mut self, now: Duration) {
        self.suffixes.expire(now);
        if let Some(pool) = &mut self.addresses4 {
            pool.expire(now);
        }
    }
}
