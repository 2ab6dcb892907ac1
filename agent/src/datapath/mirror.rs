//! What the arrays hold, kept in the agent's memory: who has which id, and what to store when an entry changes.

mod rows;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use dormouse_ebpf::maps::{BACKENDS_MAX, PREFIXES_MAX};
use dormouse_ebpf::service::{EventKind, Mode, Route, SETS_MAX, Set, VIPS_MAX, noted};

use super::arrays::Arrays;
use super::entry::Entry;
use super::error::DatapathError;
use super::events::KernelEvent;
use super::grace::Moment;
use super::ids::Ids;
use rows::Rows;

/// A backend by what it is: address and port.
type Key = ([u8; 16], u16);

/// The agent's side of the arrays.
#[derive(Debug)]
pub(super) struct Mirror {
    backends: Named<Key>,
    prefixes: Named<[u8; 12]>,
    rows: Rows,
    vips: BTreeMap<u32, Held>,
}

/// What one VIP has in the arrays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    backends: Vec<Key>,
    set: Set,
}

impl Mirror {
    /// Reads the arrays as the agent before left them.
    pub(super) fn read(arrays: &Arrays) -> Self {
        let mut vips = BTreeMap::new();
        let mut backends = BTreeMap::new();
        let mut prefixes = BTreeMap::new();
        for vip in 0..VIPS_MAX {
            if !route(arrays, vip).present {
                continue;
            }
            let set = Set::unpack(arrays.svc.load(vip as usize * 2 + 1).unwrap_or(0));
            let ids: Vec<u32> = (set.offset..)
                .take(set.count.into())
                .map_while(|place| arrays.id(place))
                .collect();
            let mut held = Held {
                backends: Vec::new(),
                set,
            };
            for id in ids {
                let Some((prefix, host, port)) = arrays.backend(id) else {
                    continue;
                };
                let Some(upper) = arrays.prefix(prefix) else {
                    continue;
                };
                let key = (address(upper, host), port);
                backends.insert(key, id);
                prefixes.insert(upper, prefix);
                held.backends.push(key);
            }
            vips.insert(vip, held);
        }
        let mut mirror = Self {
            backends: Named::with_used(BACKENDS_MAX, backends),
            prefixes: Named::with_used(PREFIXES_MAX, prefixes),
            rows: Rows::with_used(vips.values().map(|held| held.set)),
            vips,
        };
        mirror.count_uses();
        mirror
    }

    fn count_uses(&mut self) {
        for held in self.vips.values() {
            for key in &held.backends {
                self.backends.uses(key);
            }
        }
        let keys: Vec<Key> = self.backends.keys().copied().collect();
        for key in keys {
            self.prefixes.uses(&upper(&key));
        }
    }

    /// The VIPs held, sorted.
    pub(super) fn followed(&self) -> Vec<u32> {
        self.vips.keys().copied().collect()
    }

    /// Events that were raised, and may have been lost with the agent that read them: they are told again.
    pub(super) fn unanswered(arrays: &Arrays) -> Vec<KernelEvent> {
        (0..VIPS_MAX)
            .filter_map(|vip| {
                let route = route(arrays, vip);
                let raised = arrays.touch.load(vip as usize)? == noted(route);
                let kind = match (raised, route.present) {
                    (true, true) if route.asleep => EventKind::Wake,
                    (true, false) => EventKind::Miss,
                    _ => return None,
                };
                Some(KernelEvent {
                    vip,
                    kind,
                    at_ns: 0,
                })
            })
            .collect()
    }

    /// Puts an entry in force: backends and set first, then the one word that leads to them (or away from them first).
    pub(super) fn publish(
        &mut self,
        arrays: &Arrays,
        entry: &Entry,
        now: Moment,
    ) -> Result<(), DatapathError> {
        if entry.vip >= VIPS_MAX {
            return Err(DatapathError::Index { vip: entry.vip });
        }
        let mut wanted: Vec<Key> = entry
            .backends
            .iter()
            .map(|b| (b.address.octets(), b.port))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let old = self.vips.get(&entry.vip).cloned().unwrap_or_default();
        let next = next_route(route(arrays, entry.vip), entry);
        let place = entry.vip as usize * 2;
        if entry.mode == Mode::Proxy {
            arrays.svc.store(place, next.pack());
        }
        if wanted != old.backends || !self.vips.contains_key(&entry.vip) {
            let set = self.write_set(arrays, &wanted, old.set.generation, now)?;
            arrays.svc.store(place + 1, set.pack());
            self.vips.insert(
                entry.vip,
                Held {
                    backends: wanted,
                    set,
                },
            );
            self.release(&old, now);
        }
        arrays.svc.store(place, next.pack());
        Ok(())
    }

    /// Takes a VIP's entry away.
    pub(super) fn forget(&mut self, arrays: &Arrays, vip: u32, now: Moment) {
        let Some(held) = self.vips.remove(&vip) else {
            return;
        };
        let generation = route(arrays, vip).generation.wrapping_add(1);
        arrays.svc.store(
            vip as usize * 2,
            Route {
                generation,
                ..Route::ABSENT
            }
            .pack(),
        );
        arrays.svc.store(vip as usize * 2 + 1, 0);
        self.release(&held, now);
    }

    /// Writes a new set into rows of its own.
    fn write_set(
        &mut self,
        arrays: &Arrays,
        keys: &[Key],
        before: u32,
        now: Moment,
    ) -> Result<Set, DatapathError> {
        let full = |what, max: u32| DatapathError::Full {
            what,
            max: max as usize,
        };
        let count = u16::try_from(keys.len())
            .map_err(|_too_many| full("backends of one VIP", u16::MAX.into()))?;
        let offset = self
            .rows
            .take(count, now)
            .ok_or_else(|| full("sets of backends", SETS_MAX))?;
        let mut ids = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(id) = self.backend(arrays, key, now) else {
                let set = Set {
                    offset,
                    count,
                    generation: 0,
                };
                self.release(
                    &Held {
                        backends: keys[..ids.len()].to_vec(),
                        set,
                    },
                    now,
                );
                return Err(full("backends", BACKENDS_MAX));
            };
            ids.push(id);
        }
        arrays.write_ids(offset, &ids);
        Ok(Set {
            offset,
            count,
            generation: before.wrapping_add(1) & 0xff_ffff,
        })
    }

    /// The id of a backend, used once more; written if it is new.
    fn backend(&mut self, arrays: &Arrays, key: &Key, now: Moment) -> Option<u32> {
        if let Some(id) = self.backends.uses(key) {
            return Some(id);
        }
        let upper = upper(key);
        let prefix = if let Some(id) = self.prefixes.uses(&upper) {
            id
        } else {
            let id = self.prefixes.add(upper, now)?;
            arrays.write_prefix(id, upper);
            id
        };
        let Some(id) = self.backends.add(*key, now) else {
            self.prefixes.leaves(&upper, now);
            return None;
        };
        let (address, port) = key;
        arrays.write_backend(
            id,
            prefix,
            [address[12], address[13], address[14], address[15]],
            *port,
        );
        Some(id)
    }

    fn release(&mut self, held: &Held, now: Moment) {
        for key in &held.backends {
            if self.backends.leaves(key, now) {
                self.prefixes.leaves(&upper(key), now);
            }
        }
        self.rows.rest(held.set, now);
    }
}

/// The route that an entry asks for; the generation goes up when a sleep begins.
fn next_route(old: Route, entry: &Entry) -> Route {
    let begins_sleep = entry.asleep && !(old.present && old.asleep);
    Route {
        mode: entry.mode,
        share: entry.share,
        leased: entry.leased,
        asleep: entry.asleep,
        present: true,
        gone: entry.gone,
        port: entry.port,
        generation: old.generation.wrapping_add(u32::from(begins_sleep)),
    }
}

fn route(arrays: &Arrays, vip: u32) -> Route {
    Route::unpack(arrays.svc.load(vip as usize * 2).unwrap_or(0))
}

fn upper((address, _): &Key) -> [u8; 12] {
    let mut upper = [0; 12];
    upper.copy_from_slice(&address[..12]);
    upper
}

fn address(upper: [u8; 12], host: [u8; 4]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..12].copy_from_slice(&upper);
    address[12..].copy_from_slice(&host);
    address
}

/// Things that have an id for as long as somebody uses them.
#[derive(Debug)]
struct Named<K> {
    known: HashMap<K, (u32, usize)>,
    ids: Ids,
}

impl<K: Eq + Hash + Clone + Ord> Named<K> {
    fn with_used(max: u32, used: BTreeMap<K, u32>) -> Self {
        let ids = Ids::with_used(max, &used.values().copied().collect());
        Self {
            known: used.into_iter().map(|(key, id)| (key, (id, 0))).collect(),
            ids,
        }
    }

    fn keys(&self) -> impl Iterator<Item = &K> {
        self.known.keys()
    }

    /// The id of a known thing, which has one use more.
    fn uses(&mut self, key: &K) -> Option<u32> {
        let (id, uses) = self.known.get_mut(key)?;
        *uses += 1;
        Some(*id)
    }

    fn add(&mut self, key: K, now: Moment) -> Option<u32> {
        let id = self.ids.take(now)?;
        self.known.insert(key, (id, 1));
        Some(id)
    }

    /// One use less; true if that was the last.
    fn leaves(&mut self, key: &K, now: Moment) -> bool {
        let Some((id, uses)) = self.known.get_mut(key) else {
            return false;
        };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return false;
        }
        self.ids.rest(*id, now);
        self.known.remove(key);
        true
    }
}

#[cfg(test)]
mod tests;
