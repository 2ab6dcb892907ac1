//! The reads of a decision, as a trait: in the kernel over the maps themselves, in user space over the pinned maps.

use crate::config::Config;
use crate::maps::{
    Affinity, AffinityKey, Backend, FrontendKey, SlotOptions, frontend_filter_bit, join,
};
use crate::pick::distance;
use crate::service::{Route, Set, Target};
use crate::trace::Step;

/// The maps that a decision reads.
pub trait Tables {
    /// The node's facts in force.
    fn config(&self) -> Option<&Config>;
    /// A slot's first word, a packed [`Route`](crate::service::Route).
    fn route(&self, slot: u32) -> Option<u64>;
    /// A slot's second word, a packed [`Set`].
    fn set(&self, slot: u32) -> Option<u64>;
    /// The backend id at a place in the arena of backend sets.
    fn id(&self, place: u32) -> Option<u32>;
    /// The backend with this id.
    fn backend(&self, id: u32) -> Option<Backend>;
    /// The upper 96 bits of a node prefix, the rest zero.
    fn prefix(&self, id: u32) -> Option<[u8; 16]>;
    /// A word of the frontend filter; 0 if there is no such word.
    fn frontend_filter(&self, word: u32) -> u64;
    /// Whether the map `frontend` may have an entry for this address.
    #[inline(always)]
    fn in_frontend_filter(&self, address: &[u8; 16]) -> bool {
        let (word, bit) = frontend_filter_bit(address);
        self.frontend_filter(word) & bit != 0
    }
    /// An entry of the map `frontend`.
    fn frontend(&self, key: &FrontendKey) -> Option<u32>;
    /// Whether the address is that of a pod that the agent has wired.
    fn has_pod(&self, address: &[u8; 16]) -> bool;
    /// A slot's options.
    fn slot_options(&self, slot: u32) -> Option<SlotOptions>;
    /// Whether a source is in one of the slot's source ranges.
    fn in_source_range(&self, slot: u32, source: &[u8; 16]) -> bool;
    /// A client's session affinity.
    fn affinity(&self, key: &AffinityKey) -> Option<Affinity>;
    /// The end of the node lease, CLOCK_BOOTTIME; with [`LEASE_STALE`](crate::maps::LEASE_STALE) it has no end.
    fn lease_until_ns(&self) -> u64;
    /// CLOCK_BOOTTIME.
    fn now_ns(&self) -> u64;
    /// The id of the set's backend that is nearest to the hash: rendezvous hashing by [`Search`] over the whole set.
    #[inline(always)]
    fn rendezvous(&self, set: Set, hash: u64) -> Option<u32> {
        let mut search = Search::of(set, hash);
        for place in 0..u32::from(set.count) {
            search.look(self, place);
        }
        search.found()
    }
    /// Whether a first packet to the VIP takes a token of its source: there is a limit of wakes, and it would raise an event.
    #[inline(always)]
    fn takes_token(&self, _vip: u32, _route: Route, _target: Target) -> bool {
        false
    }
    /// Records a step of the decision, if the decision is traced.
    #[inline(always)]
    fn trace(&self, _step: Step, _first: u64, _second: u64) {}
}

/// Rendezvous hashing over a whole set: finds the backend that is nearest to a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Search {
    hash: u64,
    nearest: u64,
    offset: u32,
    best: u32,
    found: u64,
}

impl Search {
    /// A search that has compared no backend yet.
    #[inline(always)]
    pub const fn of(set: Set, hash: u64) -> Self {
        Self {
            hash,
            nearest: u64::MAX,
            offset: set.offset,
            best: 0,
            found: 0,
        }
    }

    /// Compares the backend at a place of the set; of equal distances the first one wins.
    #[inline(always)]
    pub fn look<T: Tables + ?Sized>(&mut self, tables: &T, place: u32) {
        let Some(id) = tables.id(self.offset.wrapping_add(place)) else {
            return;
        };
        let Some(backend) = tables.backend(id) else {
            return;
        };
        let Some(prefix) = tables.prefix(backend.prefix) else {
            return;
        };
        let address = join(&prefix, backend.host);
        let distance = distance(self.hash, &address, backend.port, backend.weight);
        if distance < self.nearest {
            self.nearest = distance;
            self.best = id;
            self.found = 1;
        }
    }

    /// The nearest backend's id; none if the set has no backend.
    #[inline(always)]
    pub fn found(&self) -> Option<u32> {
        (self.found != 0).then_some(self.best)
    }
}
