//! The maps of a test as the decision function reads them.

use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::Tables;
use dormouse_ebpf::maps::{Affinity, AffinityKey, Backend, FrontendKey, SlotOptions};

use super::bench::Maps;
use crate::clock;

impl Tables for Maps {
    fn config(&self) -> Option<&Config> {
        Some(&self.config)
    }

    fn route(&self, slot: u32) -> Option<u64> {
        self.arrays.svc.load(slot as usize * 2)
    }

    fn set(&self, slot: u32) -> Option<u64> {
        self.arrays.svc.load(slot as usize * 2 + 1)
    }

    fn id(&self, place: u32) -> Option<u32> {
        self.arrays.id(place)
    }

    fn backend(&self, id: u32) -> Option<Backend> {
        self.arrays.backend(id)
    }

    fn prefix(&self, id: u32) -> Option<[u8; 16]> {
        self.arrays.upper(id)
    }

    fn frontend_filter(&self, word: u32) -> u64 {
        self.arrays.frontend_filter.load(word as usize).unwrap_or(0)
    }

    fn frontend(&self, key: &FrontendKey) -> Option<u32> {
        self.frontends.get(key)
    }

    /// The agent wires them, and none runs here.
    fn has_pod(&self, _: &[u8; 16]) -> bool {
        false
    }

    fn slot_options(&self, slot: u32) -> Option<SlotOptions> {
        self.slot_options.get(&slot)
    }

    fn in_source_range(&self, slot: u32, source: &[u8; 16]) -> bool {
        self.source_ranges.admits(slot, source)
    }

    /// The programs note it, and none runs here.
    fn affinity(&self, _: &AffinityKey) -> Option<Affinity> {
        None
    }

    fn lease_until_ns(&self) -> u64 {
        self.arrays.lease.load(0).unwrap_or(0)
    }

    fn now_ns(&self) -> u64 {
        clock::boottime_ns()
    }
}
