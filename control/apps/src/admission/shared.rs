//! The limits of all shards: exact at any time, and fair between tenants whatever the shards of their apps.
//!
//! One lock, held for one operation; no other lock is taken meanwhile. What is granted to an app of another shard is kept
//! until that shard takes it, and counts as used.

use std::collections::BTreeSet;

use dormouse_fleet::Boottime;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::pods::Pods;
use super::wakes::Wakes;
use super::{Held, Limits, Scope};
use crate::shards::Shards;

/// Interval in which tenants without wakes are forgotten, nanoseconds.
const FORGET_NS: u64 = 1_000_000_000;

/// The wakes and pods of all shards.
#[derive(Debug)]
pub(crate) struct Admission {
    shards: Shards,
    pods_per_app: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    wakes: Wakes,
    pods: Pods,
    /// By shard.
    granted: Vec<Granted>,
    /// The number of wakes that wait, for the metrics.
    waiting: Gauge,
    forgotten: Boottime,
}

/// Apps of one shard whose turn it is.
#[derive(Debug, Default)]
struct Granted {
    wakes: BTreeSet<u32>,
    pods: BTreeSet<u32>,
}

/// A wake that waits for the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The limit.
    pub(crate) scope: Scope,
    /// An event about its tenant is due.
    pub(crate) is_announced: bool,
}

impl Admission {
    /// No app waits or has pods. `waiting` gets the number of wakes that wait.
    pub(crate) fn new(limits: Limits, shards: Shards, waiting: Gauge) -> Self {
        let state = State {
            wakes: Wakes::new(limits.wakes),
            pods: Pods::new(limits),
            granted: (0..shards.count()).map(|_| Granted::default()).collect(),
            waiting,
            forgotten: Boottime::default(),
        };
        Self {
            shards,
            pods_per_app: limits.pods_per_app,
            state: Mutex::new(state),
        }
    }

    /// An app that sleeps is wanted: [`Admission::wakes`] of its shard returns it when it may wake. Returns what it waits for
    /// if that is not now, and if it was not wanted before.
    pub(crate) fn want(&self, tenant: &str, vip: u32, now: Boottime) -> Option<Waits> {
        let mut state = self.state.lock();
        let granted = &state.granted[self.shards.of(vip)].wakes;
        if granted.contains(&vip) || !state.wakes.want(tenant, vip) {
            return None;
        }
        state.admit(self.shards, now);
        let scope = state.wakes.waits_for(vip)?;
        let is_announced = state.wakes.announce(tenant, now);
        Some(Waits {
            scope,
            is_announced,
        })
    }

    /// The apps of a shard that may wake now, and the other shards that have such.
    pub(crate) fn wakes(&self, shard: usize, now: Boottime) -> (BTreeSet<u32>, Vec<usize>) {
        let mut state = self.state.lock();
        state.admit(self.shards, now);
        let wakes = std::mem::take(&mut state.granted[shard].wakes);
        (wakes, state.waiting_shards())
    }

    /// The time from which on [`Admission::wakes`] has another app; none while no app waits.
    pub(crate) fn due(&self) -> Option<Boottime> {
        self.state.lock().wakes.due()
    }

    /// Admits the wakes whose time has come; returns their shards.
    pub(crate) fn admit(&self, now: Boottime) -> Vec<usize> {
        let mut state = self.state.lock();
        state.admit(self.shards, now);
        state.waiting_shards()
    }

    /// The limit that an app's wake waits for; none if it does not wait.
    pub(crate) fn waits_for(&self, vip: u32) -> Option<Scope> {
        self.state.lock().wakes.waits_for(vip)
    }

    /// The most pods of one app; 0: no limit.
    pub(crate) fn pods_per_app(&self) -> u32 {
        self.pods_per_app
    }

    /// An app lacks pods: takes what it may create, see [`Pods::take`].
    pub(crate) fn take_pods(&self, tenant: &str, vip: u32, missing: usize) -> (usize, Held) {
        self.state.lock().pods.take(tenant, vip, missing)
    }

    /// The number of an app's pods, those that are being removed included, was `before` and is now `after`.
    pub(crate) fn pods_counted(&self, tenant: &str, before: usize, after: usize) {
        self.state.lock().pods.counted(tenant, before, after);
    }

    /// An app is no longer what had the pods: none of them counts, and it waits for none.
    pub(crate) fn forget_pods(&self, tenant: &str, vip: u32, counted: usize) {
        let mut state = self.state.lock();
        state.pods.counted(tenant, counted, 0);
        state.pods.lacks(tenant, vip, false);
        state.pods.give_back(vip);
    }

    /// The apps of a shard that may take a pod each, and the other shards that have such. For each app,
    /// [`Admission::end_turn`] follows.
    pub(crate) fn turns(&self, shard: usize) -> (BTreeSet<u32>, Vec<usize>) {
        let mut state = self.state.lock();
        while let Some(vip) = state.pods.turn() {
            let of = self.shards.of(vip);
            state.granted[of].pods.insert(vip);
        }
        let pods = std::mem::take(&mut state.granted[shard].pods);
        (pods, state.waiting_shards())
    }

    /// An app had its turn: a pod that it did not take is given back.
    pub(crate) fn end_turn(&self, vip: u32) {
        self.state.lock().pods.give_back(vip);
    }

    /// Once a second, forgets tenants without wakes: from then on they cost nothing.
    pub(crate) fn forget_idle(&self, now: Boottime) {
        let mut state = self.state.lock();
        if now.0 >= state.forgotten.0 + FORGET_NS {
            state.forgotten = now;
            state.wakes.forget_idle(now);
        }
    }
}

impl State {
    fn admit(&mut self, shards: Shards, now: Boottime) {
        while let Some(vip) = self.wakes.admit(now) {
            self.granted[shards.of(vip)].wakes.insert(vip);
        }
        let waiting = i64::try_from(self.wakes.len()).unwrap_or(i64::MAX);
        self.waiting.set(waiting);
    }

    /// The shards with apps whose turn it is.
    fn waiting_shards(&self) -> Vec<usize> {
        let granted = self.granted.iter().enumerate();
        let some = granted.filter(|(_, granted)| !granted.is_empty());
        some.map(|(shard, _)| shard).collect()
    }
}

impl Granted {
    fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.pods.is_empty()
    }
}

#[cfg(test)]
mod tests;
