//! Traced tables: the same decision, with a call for each of its steps.

use crate::config::Config;
use crate::maps::{Affinity, AffinityKey, Backend, FrontendKey, SlotOptions};
use crate::service::{Route, Set, Target};
use crate::tables::Tables;
use crate::trace::Step;

/// Tables whose decisions are traced by a function: not all programs have stack for that.
#[derive(Clone, Copy, Debug)]
pub struct Traced<T, F>(pub T, pub F);

macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        #[inline(always)]
        fn $name(&self, $($argument: $type),*) -> $result {
            self.0.$name($($argument),*)
        }
    )* };
}

impl<T: Tables, F: Fn(Step, u64, u64)> Tables for Traced<T, F> {
    delegate! {
        config() -> Option<&Config>;
        route(slot: u32) -> Option<u64>;
        set(slot: u32) -> Option<u64>;
        id(place: u32) -> Option<u32>;
        backend(id: u32) -> Option<Backend>;
        prefix(id: u32) -> Option<[u8; 16]>;
        frontend_filter(word: u32) -> u64;
        frontend(key: &FrontendKey) -> Option<u32>;
        has_pod(address: &[u8; 16]) -> bool;
        slot_options(slot: u32) -> Option<SlotOptions>;
        in_source_range(slot: u32, source: &[u8; 16]) -> bool;
        affinity(key: &AffinityKey) -> Option<Affinity>;
        lease_until_ns() -> u64;
        now_ns() -> u64;
        rendezvous(set: Set, hash: u64) -> Option<u32>;
        takes_token(vip: u32, route: Route, target: Target) -> bool;
    }

    #[inline(always)]
    fn trace(&self, step: Step, first: u64, second: u64) {
        self.1(step, first, second);
    }
}
