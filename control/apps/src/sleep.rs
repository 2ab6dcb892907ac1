//! The table of sleeping apps: one compact record each, found by VIP index or by name. Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use dormouse_cluster::{Key, StoredApp};
use dormouse_fleet::Boottime;
use hashbrown::HashTable;

use crate::action::Route;

/// Limit of the memory of a sleeping app besides its name, bytes.
const SLEEPER_BYTES_MAX: usize = 200;
/// A hash table has at least 7 used slots in 16 after it has grown.
const _: () =
    assert!((size_of::<(u32, Slot)>() + 1 + size_of::<u32>() + 1) * 16 / 7 < SLEEPER_BYTES_MAX);

/// What the controller keeps of a sleeping app. The rest is read from the store when it wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sleeper {
    /// The newest known revision of the app in the store. It is the version of the app's entry.
    pub(crate) revision: u64,
    /// Hash of the app's uid, of this process: another app of the same name has another one.
    pub(crate) uid: u64,
    /// Time since which an activator is in the path, milliseconds; as in the reconciler.
    pub(crate) activator_since_ms: Option<i64>,
    /// The time at which the app fell asleep; 0 before this control.
    pub(crate) slept_at: Boottime,
    /// The VIP's port.
    pub(crate) port: u16,
    /// Requests in flight that a pod accepts; 0 is no limit.
    pub(crate) container_concurrency: u32,
    /// Timeout of a request, milliseconds.
    pub(crate) timeout_ms: u32,
    /// Longest time for which a request is parked while the app wakes, milliseconds.
    pub(crate) wake_timeout_ms: u32,
}

impl Sleeper {
    /// Takes over what an app in the store has of a route.
    pub(crate) fn routed_as(self, stored: &StoredApp) -> Self {
        Self {
            revision: stored.revision,
            port: stored.port,
            container_concurrency: stored.container_concurrency,
            timeout_ms: milliseconds(stored.timeout),
            wake_timeout_ms: milliseconds(stored.wake_timeout),
            ..self
        }
    }
}

/// A timeout as a sleeping app has it.
pub(crate) fn milliseconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX)
}

struct Slot {
    sleeper: Sleeper,
    /// `namespace/name`.
    name: Box<str>,
}

/// The sleeping apps.
#[derive(Default)]
pub(crate) struct Sleep {
    slots: HashMap<u32, Slot>,
    /// VIP indexes by the hash of the name, which only the slot has.
    names: HashTable<u32>,
    hasher: RandomState,
}

impl Sleep {
    /// The record of an app in the store that sleeps.
    pub(crate) fn sleeper(&self, stored: &StoredApp) -> Sleeper {
        Sleeper {
            uid: self.uid(&stored.uid),
            ..Sleeper::default().routed_as(stored)
        }
    }

    /// The hash of a uid.
    pub(crate) fn uid(&self, uid: &str) -> u64 {
        self.hasher.hash_one(uid)
    }

    /// Adds an app. An app that had the VIP or the name before is removed.
    pub(crate) fn insert(&mut self, vip: u32, app: &Key, sleeper: Sleeper) {
        self.remove(vip);
        if let Some(before) = self.vip_of(app) {
            self.remove(before);
        }
        let name: Box<str> = app.to_string().into();
        let hash = self.hasher.hash_one(&*name);
        self.slots.insert(vip, Slot { sleeper, name });
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |vip: &u32| {
            slots
                .get(vip)
                .map_or(0, |slot| hasher.hash_one(&*slot.name))
        };
        self.names.insert_unique(hash, vip, rehash);
    }

    /// Removes the app with a VIP.
    pub(crate) fn remove(&mut self, vip: u32) -> Option<(Key, Sleeper)> {
        let slot = self.slots.remove(&vip)?;
        let hash = self.hasher.hash_one(&*slot.name);
        if let Ok(found) = self.names.find_entry(hash, |known| *known == vip) {
            found.remove();
        }
        Some((key_of(&slot.name), slot.sleeper))
    }

    /// The app with a VIP.
    pub(crate) fn get(&self, vip: u32) -> Option<&Sleeper> {
        self.slots.get(&vip).map(|slot| &slot.sleeper)
    }

    /// The route of the app with a VIP. It has no backends.
    pub(crate) fn route(&self, vip: u32) -> Option<Route> {
        let Slot { sleeper, name } = self.slots.get(&vip)?;
        Some(Route {
            name: name.to_string(),
            tenant: key_of(name).namespace,
            port: sleeper.port,
            container_concurrency: sleeper.container_concurrency,
            timeout: Duration::from_millis(sleeper.timeout_ms.into()),
            serving: false,
            backends: Vec::new(),
            wake_timeout: Duration::from_millis(sleeper.wake_timeout_ms.into()),
            problem: None,
            split: Vec::new(),
            sticky: None,
        })
    }

    /// The name of the app with a VIP.
    pub(crate) fn key(&self, vip: u32) -> Option<Key> {
        self.slots.get(&vip).map(|slot| key_of(&slot.name))
    }

    /// The VIP of an app.
    pub(crate) fn vip_of(&self, app: &Key) -> Option<u32> {
        let name = app.to_string();
        let same = |vip: &u32| self.slots.get(vip).is_some_and(|slot| *slot.name == *name);
        self.names.find(self.hasher.hash_one(&*name), same).copied()
    }

    /// The VIPs of all sleeping apps, in no order.
    pub(crate) fn vips(&self) -> impl Iterator<Item = u32> {
        self.slots.keys().copied()
    }
}

fn key_of(name: &str) -> Key {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Key::new(namespace, name)
}

#[cfg(test)]
mod tests;
