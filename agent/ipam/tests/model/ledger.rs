//! The model: leases and quarantined addresses in plain maps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use dormouse_agent_ipam::{Ipv4Wish, Lease, Request, State};

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
    /// The addresses of each container's last lease.
    former: BTreeMap<u32, (u32, Option<Ipv4Addr>)>,
    pub(crate) suffixes: BTreeSet<u32>,
    pub(crate) addresses4: BTreeSet<Ipv4Addr>,
    /// Released numbers with the times of their release, and in the order of their releases.
    quarantined: BTreeMap<u32, (Duration, u64)>,
    quarantined4: BTreeMap<Ipv4Addr, (Duration, u64)>,
    order: BTreeMap<u64, u32>,
    order4: BTreeMap<u64, Ipv4Addr>,
    released: u64,
    in_use: BTreeMap<u32, u32>,
}

impl Ledger {
    pub(crate) fn new(narrow: bool) -> Self {
        Self {
            narrow,
            ..Self::default()
        }
    }

    /// Ends the quarantines that began at `begin` or before.
    pub(crate) fn pass(&mut self, begin: Duration) {
        while let Some((_, suffix)) = self.order.first_key_value()
            && self.quarantined[suffix].0 <= begin
        {
            let (_, suffix) = self.order.pop_first().unwrap();
            self.quarantined.remove(&suffix);
            self.count(suffix, false);
        }
        while let Some((_, address)) = self.order4.first_key_value()
            && self.quarantined4[address].0 <= begin
        {
            let (_, address) = self.order4.pop_first().unwrap();
            self.quarantined4.remove(&address);
        }
    }

    pub(crate) fn hold(&mut self, container: u32, lease: &Lease) {
        let suffix = lease.suffix.0;
        assert!(self.suffixes.insert(suffix), "{suffix:08x} is leased twice");
        match self.quarantined.remove(&suffix) {
            Some((_, order)) => assert!(self.order.remove(&order).is_some()),
            None => self.count(suffix, true),
        }
        if let Some(address) = lease.ipv4 {
            if let Some((_, order)) = self.quarantined4.remove(&address) {
                assert!(self.order4.remove(&order).is_some());
            }
            assert!(self.addresses4.insert(address), "{address} is leased twice");
        }
        assert!(self.held.insert(container, lease.clone()).is_none());
    }

    pub(crate) fn step(&mut self, container: u32, state: State) {
        if let Some(lease) = self.held.get_mut(&container) {
            lease.state = state;
        }
    }

    pub(crate) fn free(&mut self, container: u32, now: Duration) {
        let Some(lease) = self.held.remove(&container) else {
            return;
        };
        self.former.insert(container, (lease.suffix.0, lease.ipv4));
        self.released += 1;
        let begin = (now, self.released);
        self.suffixes.remove(&lease.suffix.0);
        self.quarantined.insert(lease.suffix.0, begin);
        self.order.insert(self.released, lease.suffix.0);
        if let Some(address) = lease.ipv4 {
            self.addresses4.remove(&address);
            self.quarantined4.insert(address, begin);
            self.order4.insert(self.released, address);
        }
    }

    /// Whether the container requests an address that its last lease had.
    pub(crate) fn was_of(&self, container: u32, request: &Request) -> bool {
        self.former.get(&container).is_some_and(|(suffix, ipv4)| {
            let of_suffix =
                |address: Ipv6Addr| address.to_bits() & u128::from(u32::MAX) == u128::from(*suffix);
            request.address.is_some_and(of_suffix)
                || ipv4.is_some_and(|address| request.ipv4 == Ipv4Wish::Exactly(address))
        })
    }

    pub(crate) fn reboot(&mut self) {
        *self = Self::new(self.narrow);
    }

    pub(crate) fn is_quarantined(&self, suffix: u32) -> bool {
        self.quarantined.contains_key(&suffix)
    }

    /// Since when a number is in quarantine.
    pub(crate) fn since(&self, suffix: u32) -> Option<Duration> {
        self.quarantined.get(&suffix).map(|(at, _)| *at)
    }

    pub(crate) fn since4(&self, address: Ipv4Addr) -> Option<Duration> {
        self.quarantined4.get(&address).map(|(at, _)| *at)
    }

    /// The number of these lanes that was released first.
    pub(crate) fn oldest(&self, lanes: &[u32]) -> Option<u32> {
        let mut oldest_first = self.order.values().copied();
        oldest_first
            .find(|suffix| lane(*suffix, self.narrow).is_some_and(|lane| lanes.contains(&lane)))
    }

    pub(crate) fn oldest4(&self) -> Option<Ipv4Addr> {
        self.order4.values().next().copied()
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
