//! Chooses addresses: sparse, in constant time, never one that rests. Pure: time is an argument and every change is a
//! [`Record`], so a replayed journal gives the same allocator.

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
mod error;
#[cfg(test)]
mod tests;

pub use error::AllocateError;

/// How long a released address rests by default, so that nobody's late packet meets its next holder.
pub const REST_DEFAULT: Duration = Duration::from_mins(1);

/// Which addresses an attachment wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub key: LeaseKey,
    /// The pod's namespace.
    pub netns: NetnsId,
    /// A certain address, or any.
    pub address: Option<Ipv6Addr>,
    /// What the pod is, if the cluster knows; its address says so.
    pub cohort: Option<u32>,
    /// What it wants of IPv4.
    pub ipv4: Ipv4Wish,
    /// Whether the pod's link is ours; see [`Lease::wired`].
    pub wired: bool,
}

/// What an attachment wants of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv4Wish {
    /// Nothing.
    #[default]
    None,
    /// The next address.
    Any,
    /// A certain address.
    Exactly(Ipv4Addr),
}

impl Request {
    /// Any IPv6 address, without a cohort, for a pod that is wired by us.
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

/// How many addresses of the node's prefix are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Leases.
    pub held: u64,
    /// Released a short while ago.
    pub resting: u64,
    /// What pods without a cohort can still get.
    pub free: u64,
}

/// What is held and what rests on one node. A chosen address is first *claimed*, which keeps others from it, and becomes
/// a lease when its record is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocator {
    prefix: NodePrefix,
    range4: Option<Ipv4Range>,
    suffixes: Pool,
    addresses4: Option<Pool>,
    leases: HashMap<Suffix, Arc<Lease>>,
    /// Of leases and of claims.
    keys: HashMap<LeaseKey, Suffix>,
}

impl Allocator {
    /// An allocator that holds nothing. Released addresses rest for `rest`; numbers are drawn in `order`, IPv4 addresses
    /// by counting.
    pub fn new(
        prefix: NodePrefix,
        range4: Option<Ipv4Range>,
        order: Order,
        rest: Duration,
    ) -> Self {
        let pool4 = |range| Pool::new(Space::Ipv4(range), Order::Counting, rest);
        Self {
            prefix,
            range4,
            suffixes: Pool::new(Space::Suffixes(prefix), order, rest),
            addresses4: range4.map(pool4),
            leases: HashMap::new(),
            keys: HashMap::new(),
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

    /// Whether an address is held.
    pub fn holds(&self, suffix: Suffix) -> bool {
        self.leases.contains_key(&suffix)
    }

    /// Applies one change; changes of leases that are not there are ignored.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Header { .. } => {}
            Record::Reserve(lease) => self.insert(lease),
            Record::Live(suffix) => self.step(*suffix, State::Live),
            Record::Release(suffix) => self.step(*suffix, State::Releasing),
            Record::Free(suffix, at) => self.free(*suffix, *at),
            Record::Cursor(suffix) => self.suffixes.go_on_at(suffix.0),
            Record::RestIpv4(address, at) => self.rest4(*address, *at),
            Record::CursorIpv4(address) => {
                if let Some(pool) = &mut self.addresses4 {
                    pool.go_on_at(address.to_bits());
                }
            }
        }
    }

    /// The shortest list of changes that leads here from an empty allocator, claims left out.
    pub fn snapshot(&self) -> Vec<Record> {
        let suffixes = &self.suffixes;
        let mut records = Vec::with_capacity(self.leases.len() + suffixes.resting() + 1);
        records.extend(suffixes.rests().map(|(n, at)| Record::Free(Suffix(n), at)));
        if let Some(pool) = &self.addresses4 {
            let rests = pool.rests().map(|(n, at)| (Ipv4Addr::from_bits(n), at));
            records.extend(rests.map(|(address, at)| Record::RestIpv4(address, at)));
        }
        records.extend(self.leases.values().cloned().map(Record::Reserve));
        records.extend(suffixes.next_numbers().map(|n| Record::Cursor(Suffix(n))));
        if let Some(pool) = &self.addresses4 {
            let next = pool.next_numbers().map(Ipv4Addr::from_bits);
            records.extend(next.map(Record::CursorIpv4));
        }
        records
    }

    /// The same places to go on drawing, with nothing held and nothing resting: what a reboot leaves.
    #[must_use]
    pub fn forget_all(&self) -> Self {
        Self {
            prefix: self.prefix,
            range4: self.range4,
            suffixes: self.suffixes.forget_all(),
            addresses4: self.addresses4.as_ref().map(Pool::forget_all),
            leases: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    fn insert(&mut self, lease: &Arc<Lease>) {
        self.wake(lease.since);
        if self.keys.get(&lease.key) != Some(&lease.suffix) {
            self.hold(lease);
        }
        self.leases.insert(lease.suffix, Arc::clone(lease));
    }

    fn step(&mut self, suffix: Suffix, state: State) {
        if let Some(lease) = self.leases.get_mut(&suffix) {
            Arc::make_mut(lease).state = state;
        }
    }

    fn free(&mut self, suffix: Suffix, at: Duration) {
        let Some(lease) = self.leases.remove(&suffix) else {
            return self.rest_unheld(suffix, at);
        };
        self.keys.remove(&lease.key);
        self.suffixes.begin_rest(suffix.0, at);
        if let Some(address) = lease.ipv4 {
            self.rest4(address, at);
        }
    }

    fn rest4(&mut self, address: Ipv4Addr, at: Duration) {
        if let Some(pool) = &mut self.addresses4 {
            pool.begin_rest(address.to_bits(), at);
        }
    }

    /// Ends the rest of those whose time has come.
    fn wake(&mut self, now: Duration) {
        self.suffixes.wake(now);
        if let Some(pool) = &mut self.addresses4 {
            pool.wake(now);
        }
    }
}
