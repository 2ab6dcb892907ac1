//! The load of the activators in the current second, added up, by slice.

use std::collections::BTreeMap;

use dormouse_activator::link::Load;

use super::{SLICES, slice_of};

/// The load by slice and VIP.
#[derive(Debug, Default)]
pub(super) struct Loads([BTreeMap<u32, Load>; SLICES]);

impl Loads {
    /// Adds the load in one activator.
    pub(super) fn add(&mut self, loads: Vec<Load>) {
        for load in loads {
            let sum = self.0[slice_of(load.vip)].entry(load.vip).or_default();
            sum.vip = load.vip;
            sum.concurrency += load.concurrency;
            sum.requests += load.requests;
        }
    }

    /// Takes the load of the apps in a slice.
    pub(super) fn take(&mut self, slice: usize) -> BTreeMap<u32, Load> {
        let loads = self.0.get_mut(slice).map(std::mem::take);
        loads.unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }
}
