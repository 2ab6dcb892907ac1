//! What a decision reads, wherever it is made: in the kernel over the maps themselves, outside of it through windows.

use crate::config::Config;
use crate::maps::{Backend, Extra, ForeignKey, Sticky, StickyKey, filter_bit, join};
use crate::pick::distance;
use crate::service::Set;
use crate::trace::Step;

/// What a decision reads: the maps, in the kernel or through its windows.
pub trait Tables {
    /// The node's facts.
    fn config(&self) -> Option<&Config>;
    /// A slot's first word.
    fn route(&self, slot: u32) -> Option<u64>;
    /// A slot's second word.
    fn set(&self, slot: u32) -> Option<u64>;
    /// The id in a place of the arena of sets.
    fn id(&self, place: u32) -> Option<u32>;
    /// A backend.
    fn backend(&self, id: u32) -> Option<Backend>;
    /// The upper 96 bits of a node prefix, the rest zero.
    fn prefix(&self, id: u32) -> Option<[u8; 16]>;
    /// A word of the filter before what is known of addresses; none set where there is no such word.
    fn filter(&self, word: u32) -> u64;
    /// Whether there may be an entry for this address.
    #[inline(always)]
    fn may_be_foreign(&self, address: &[u8; 16]) -> bool {
        let (word, bit) = filter_bit(address);
        self.filter(word) & bit != 0
    }
    /// What is known of an address, or of a port at it.
    fn foreign(&self, key: &ForeignKey) -> Option<u32>;
    /// What a slot has besides.
    fn extra(&self, slot: u32) -> Option<Extra>;
    /// Whether a source is in a source range of the slot.
    fn admits(&self, slot: u32, source: &[u8; 16]) -> bool;
    /// What is remembered of a client.
    fn sticky(&self, key: &StickyKey) -> Option<Sticky>;
    /// The end of the node lease, CLOCK_BOOTTIME.
    fn lease_until_ns(&self) -> u64;
    /// CLOCK_BOOTTIME.
    fn now_ns(&self) -> u64;
    /// The id of a set that is nearest to the hash: [`Search`] over all of it.
    #[inline(always)]
    fn favourite(&self, set: Set, hash: u64) -> Option<u32> {
        let mut search = Search::of(set, hash);
        for place in 0..u32::from(set.count) {
            search.look(self, place);
        }
        search.found()
    }
    /// Says what was decided, to whoever wants an explanation: see [`Step`].
    #[inline(always)]
    fn tell(&self, _step: Step, _first: u64, _second: u64) {}
}

/// A search for the backend of a whole set that a flow is nearest to.
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
    /// Nothing looked at yet.
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

    /// Looks at the backend in a place of the set; of equals the first is the nearest.
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

    /// The nearest backend's id, if there was any.
    #[inline(always)]
    pub fn found(&self) -> Option<u32> {
        (self.found != 0).then_some(self.best)
    }
}
