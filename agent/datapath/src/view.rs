//! The maps as seen by the decision function in user space.

use std::ops::Deref;

use aya::maps::{HashMap, MapData};
use dormouse_ebpf::config::Config;
use dormouse_ebpf::decide::Tables;
use dormouse_ebpf::maps::{Affinity, AffinityKey, Backend, FrontendKey, SlotOptions};

use super::arrays::Arrays;
use super::clock;
use super::services::Registry;

/// A read-only view of the maps.
pub struct View<'a> {
    pub(super) arrays: &'a Arrays,
    pub(super) registry: Box<dyn Deref<Target = Registry> + 'a>,
    pub(super) config: Config,
    pub(super) affinity: Option<&'a HashMap<MapData, AffinityKey, Affinity>>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Tables for View<'_> {
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
        self.registry.frontend(key)
    }

    fn slot_options(&self, slot: u32) -> Option<SlotOptions> {
        self.registry.slot_options(slot)
    }

    fn in_source_range(&self, slot: u32, source: &[u8; 16]) -> bool {
        self.registry.in_source_range(slot, source)
    }

    fn affinity(&self, key: &AffinityKey) -> Option<Affinity> {
        self.affinity.as_ref()?.get(key, 0).ok()
    }

    fn lease_until_ns(&self) -> u64 {
        self.arrays.lease.load(0).unwrap_or(0)
    }

    fn now_ns(&self) -> u64 {
        clock::boottime_ns()
    }
}
