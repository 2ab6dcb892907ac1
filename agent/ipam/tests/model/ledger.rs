//! The model: leases and quarantined addresses in plain maps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use dormouse_agent_ipam::{Lease, State};

/// Numbers of one cohort.
const NUMBERS: u32 = 1023;

/// The lane of a suffix: 0 for pods without a cohort, else the cohort; `None` if it is never drawn.
pub(crate) fn lane(suffix: u32, narrow: bool) -> Option<u32> {
    match (suffix >> 10, suffix & 1023) {
        _ if narrow => (suffix >= 16).then_some(0),
        (64..=1023, _) => Some(0),
        (cohort, 1..) if (1024..1 << 20).contains(&(cohort % (1 << 20))) => Some(cohort),
        _ => None,
    }
}

/// All leases and quarantined addresses.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) narrow: bool,
    /// By container.
    pub(crate) held: BTreeMap<u32, Lease>,
    pub(crate) suffixes: BTreeSet<u32>,
    pub(crate) addresses4: BTreeSet<Ipv4Addr>,
    quarantined: BTreeMap<u32, Duration>,
    quarantined4: BTreeMap<Ipv4Addr, Duration>,
    ends: BTreeSet<(Duration, u32)>,
    ends4: BTreeSet<(Duration, Ipv4Addr)>,
    in_use: BTreeMap<u32, u32>,
}

impl Ledger {
    pub(crate) fn new(narrow: bool) -> Self {
        Self {
            narrow,
            ..Self::default()
        }
    }

    pub(crate) fn pass(&mut self, now: Duration) {
        while self.ends.first().is_some_and(|(until, _)| *until <= now) {
            let (_, suffix) = self.ends.pop_first().unwrap();
            self.quarantined.remove(&suffix);
            self.count(suffix, false);
        }
        while self.ends4.first().is_some_and(|(until, _)| *until <= now) {
            let (_, address) = self.ends4.pop_first().unwrap();
            self.quarantined4.remove(&address);
        }
    }

    pub(crate) fn hold(&mut self, container: u32, lease: &Lease) {
        let suffix = lease.suffix.0;
        assert!(self.suffixes.insert(suffix), "{suffix:08x} is leased twice");
        match self.quarantined.remove(&suffix) {
            Some(until) => assert!(self.ends.remove(&(until, suffix))),
            None => self.count(suffix, true),
        }
        if let Some(address) = lease.ipv4 {
            assert!(self.addresses4.insert(address), "{address} is leased twice");
        }
        assert!(self.held.insert(container, lease.clone()).is_none());
    }

    pub(crate) fn step(&mut self, container: u32, state: State) {
        if let Some(lease) = self.held.get_mut(&container) {
            lease.state = state;
        }
    }

    pub(crate) fn free(&mut self, container: u32, until: Duration) {
        let Some(lease) = self.held.remove(&container) else {
            return;
        };
        self.suffixes.remove(&lease.suffix.0);
        self.quarantined.insert(lease.suffix.0, until);
        self.ends.insert((until, lease.suffix.0));
        if let Some(address) = lease.ipv4 {
            self.addresses4.remove(&address);
            self.quarantined4.insert(address, until);
            self.ends4.insert((until, address));
        }
    }

    pub(crate) fn reboot(&mut self) {
        *self = Self::new(self.narrow);
    }

    pub(crate) fn is_quarantined(&self, suffix: u32) -> bool {
        self.quarantined.contains_key(&suffix)
    }

    pub(crate) fn is_quarantined4(&self, address: Ipv4Addr) -> bool {
        self.quarantined4.contains_key(&address)
    }

    /// Count of IPv4 addresses that are leased or in quarantine.
    pub(crate) fn in_use4(&self) -> usize {
        self.addresses4.len() + self.quarantined4.len()
    }

    pub(crate) fn is_full(&self, lane: u32) -> bool {
        let size = match (lane, self.narrow) {
            (0, true) => 240,
            (0, false) => 983_040,
            _ => NUMBERS,
        };
        self.in_use.get(&lane).copied().unwrap_or(0) >= size
    }

    fn count(&mut self, suffix: u32, more: bool) {
        if let Some(lane) = lane(suffix, self.narrow) {
            let count = self.in_use.entry(lane).or_default();
            *count = if more { *count + 1 } else { *count - 1 };
        }
    }
}
