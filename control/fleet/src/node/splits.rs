//! Traffic splits: the entry of a VIP whose new connections are spread over several VIPs is composed of theirs, whenever one of
//! them changes. Pure.

mod allot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use crate::Backend;
use crate::proto::{Count, Entry, entry::Mode};

pub use allot::BackendLoad;
use allot::Loads;

/// The sum of the weights of a composed entry's backends, about: one backend may get all of it.
const WEIGHT_WHOLE: u64 = u16::MAX as u64;

/// The entries of which splits are composed.
#[derive(Debug, Default)]
pub(super) struct Splits {
    /// The entries of VIPs with a split, as received.
    split: BTreeMap<u32, Entry>,
    /// The targets of splits.
    targets: BTreeMap<u32, Target>,
    loads: Loads,
}

/// A target of splits.
#[derive(Debug, Default)]
struct Target {
    /// Its entry as received; none: it was not received since the VIP is a target.
    entry: Option<Entry>,
    /// The VIPs that are split over it.
    of: BTreeSet<u32>,
}

/// The entries to write to the maps.
#[derive(Debug, Default)]
pub(super) struct Composed {
    pub(super) entries: Vec<Entry>,
    /// New targets whose entries control has to send.
    pub(super) unknown: Vec<u32>,
}

impl Splits {
    /// Takes received entries. Those with a split are replaced by composed ones, and those split over a target whose entry
    /// changes are composed again.
    pub(super) fn compose(&mut self, entries: Vec<Entry>) -> Composed {
        if self.split.is_empty() && entries.iter().all(|entry| entry.split.is_empty()) {
            return Composed {
                entries,
                unknown: Vec::new(),
            };
        }
        let mut composed = Composed::default();
        let mut changed = BTreeSet::new();
        // A message has the entries of new targets, too, in any order.
        for entry in &entries {
            composed.unknown.extend(self.retarget(entry));
        }
        for entry in entries {
            let vip = entry.vip;
            if let Some(target) = self.targets.get_mut(&vip) {
                changed.extend(&target.of);
                target.entry = Some(entry.clone());
            }
            if entry.split.is_empty() {
                self.split.remove(&vip);
                composed.entries.push(entry);
            } else {
                self.split.insert(vip, entry);
                changed.insert(vip);
            }
        }
        let targets = &self.targets;
        composed
            .unknown
            .retain(|vip| targets.get(vip).is_some_and(|one| one.entry.is_none()));
        let splits = changed.iter().filter_map(|vip| self.split.get(vip));
        composed
            .entries
            .extend(splits.map(|entry| self.composed(entry)));
        composed
    }

    /// A VIP is no longer followed.
    pub(super) fn forget(&mut self, vip: u32) {
        self.retarget(&Entry {
            vip,
            ..Entry::default()
        });
        self.split.remove(&vip);
        self.loads.forget(vip);
    }

    /// Whether connections of another VIP go to this one.
    pub(super) fn is_target(&self, vip: u32) -> bool {
        self.targets.contains_key(&vip)
    }

    /// Spreads the count of a VIP with a split over its targets, by the connections of each backend. That of another VIP stays.
    pub(super) fn allot(
        &mut self,
        count: &Count,
        loads: impl Fn(u32) -> Vec<BackendLoad>,
    ) -> Vec<Count> {
        let Some(entry) = self.split.get(&count.vip) else {
            return vec![*count];
        };
        let owners = entry.split.iter().map(|target| {
            let backends = self.backends_of(entry, target.vip);
            let sockets = backends
                .iter()
                .map(|backend| (backend.address(), backend.port));
            (target.vip, target.weight, sockets.collect())
        });
        let owners: Vec<_> = owners.collect();
        self.loads.allot(count, &owners, &loads(count.vip))
    }

    /// Notes the targets of an entry instead of those of the entry before. Returns those that were no targets.
    fn retarget(&mut self, entry: &Entry) -> Vec<u32> {
        let before = self.split.get(&entry.vip);
        let before: BTreeSet<u32> = before.into_iter().flat_map(Entry::targets).collect();
        let after: BTreeSet<u32> = entry.targets().collect();
        for vip in before.difference(&after) {
            if let Some(target) = self.targets.get_mut(vip) {
                target.of.remove(&entry.vip);
            }
        }
        self.targets.retain(|_, target| !target.of.is_empty());
        let mut unknown = Vec::new();
        for vip in after {
            let target = self.targets.entry(vip).or_insert_with(|| {
                unknown.push(vip);
                Target::default()
            });
            target.of.insert(entry.vip);
        }
        unknown
    }

    /// A pod has ended of which control is not informed: entries that are composed from now on are without it.
    pub(super) fn withdraw(&mut self, pod: Ipv6Addr) {
        let targets = self.targets.values_mut();
        let targets = targets.filter_map(|target| target.entry.as_mut());
        for entry in targets.chain(self.split.values_mut()) {
            let Ok(mut backends) = Backend::unpack(&entry.backends) else {
                continue;
            };
            backends.retain(|backend| backend.address() != pod);
            entry.backends = Backend::pack(&backends);
        }
    }

    /// The entry of a VIP with a split, for the maps. It is in proxy mode while one of its targets is: the activator then selects
    /// the target of each request, and wakes it. The backends of the others are in the entry, too: without an activator they get all
    /// connections.
    fn composed(&self, entry: &Entry) -> Entry {
        let weights = entry.split.iter().map(|target| u64::from(target.weight));
        let total = weights.sum();
        let (mut all, mut serves) = (Vec::new(), total > 0);
        for target in &entry.split {
            let mut backends = self.backends_of(entry, target.vip);
            let open = backends.iter().filter(|backend| backend.weight > 0);
            let open = u64::try_from(open.count()).unwrap_or(u64::MAX);
            serves &= target.weight == 0 || open > 0;
            let weight = weight(u64::from(target.weight), total, open);
            for backend in backends.iter_mut().filter(|backend| backend.weight > 0) {
                backend.weight = weight;
            }
            all.extend(backends);
        }
        let mode = if serves { Mode::Serve } else { Mode::Proxy };
        Entry {
            mode: mode.into(),
            backends: Backend::pack(&all),
            split: Vec::new(),
            asleep: false,
            ..entry.clone()
        }
    }

    /// The backends to which a target's new connections go directly; none if they go to an activator.
    fn backends_of(&self, entry: &Entry, target: u32) -> Vec<Backend> {
        let own = if target == entry.vip {
            Some(entry)
        } else {
            self.targets.get(&target).and_then(|one| one.entry.as_ref())
        };
        let serving = own.filter(|own| own.mode() == Mode::Serve && !own.gone);
        // A malformed list is refused where the target's own entry is applied.
        serving
            .and_then(|own| Backend::unpack(&own.backends).ok())
            .unwrap_or_default()
    }
}

/// The weight of each of a target's backends.
fn weight(weight: u64, total: u64, backends: u64) -> u16 {
    if weight == 0 {
        return 0;
    }
    let parts = total.saturating_mul(backends).max(1);
    let each = (weight * WEIGHT_WHOLE + parts / 2) / parts;
    u16::try_from(each.max(1)).unwrap_or(u16::MAX)
}
