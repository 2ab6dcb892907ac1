//! Apps' entries in their slots; the previous content is read back from the arrays.

use std::net::Ipv6Addr;

use dormouse_ebpf::maps::FOR_CLUSTER;
use dormouse_ebpf::service::{EventKind, Mode, Owner, Protocol, Route, Set, VIPS_MAX, noted};

use super::arrays::Arrays;
use super::entry::{Backend, Entry};
use super::error::DatapathError;
use super::events::KernelEvent;
use super::pool::{self, Member, Pool, Row};

/// The indexes of all apps' VIPs with an entry, sorted.
pub(super) fn followed(arrays: &Arrays) -> Vec<u32> {
    let held = |vip: &u32| {
        let (route, _) = arrays.slot(*vip);
        route.present && !route.is_service()
    };
    (0..VIPS_MAX).filter(held).collect()
}

/// The apps in mode proxy that have backends for new connections.
pub(super) fn proxied(arrays: &Arrays) -> Vec<u32> {
    let proxied = |vip: &u32| {
        let (route, set) = arrays.slot(*vip);
        let is_app = route.present && !route.is_service();
        is_app && route.mode == Mode::Proxy && set.count > 0
    };
    (0..VIPS_MAX).filter(proxied).collect()
}

/// Events that a program raised and that may have been lost with the previous agent; they are reported again.
pub(super) fn unanswered(arrays: &Arrays) -> Vec<KernelEvent> {
    (0..VIPS_MAX)
        .filter_map(|vip| {
            let (route, _) = arrays.slot(vip);
            let raised = arrays.touch.load(vip as usize)? == noted(route);
            let kind = match (raised, route.present) {
                (true, true) if route.asleep => EventKind::Wake,
                (true, false) => EventKind::Miss,
                _ => return None,
            };
            Some(KernelEvent {
                vip,
                kind,
                port: route.port,
                protocol: route.protocol.number(),
                at_ns: 0,
            })
        })
        .collect()
}

/// Writes an entry: backends and set first, then the route word that uses them (in the other order for removals).
pub(super) fn publish(arrays: &Arrays, pool: &Pool, entry: &Entry) -> Result<(), DatapathError> {
    if entry.vip >= VIPS_MAX {
        return Err(DatapathError::Index { vip: entry.vip });
    }
    let (old, held) = own_slot(arrays, entry.vip)?;
    let mut wanted = wanted(entry);
    let next = next_route(old, entry, &wanted);
    if entry.mode == Mode::Proxy {
        arrays.write_route(entry.vip, next);
    }
    let gone = take_ids(arrays, held, &mut wanted);
    pool.admit(arrays, &mut wanted)?;
    let (ids, picked) = in_order(&wanted);
    let moved = !pool::holds(arrays, held, &ids) || usize::from(held.count) != picked;
    if moved {
        let set = pool::counts(picked, ids.len())
            .and_then(|counts| Ok((counts, pool.write(arrays, &ids)?)));
        let ((count, leaving), offset) = match set {
            Ok(set) => set,
            Err(error) => {
                pool.undo(arrays, &mut wanted);
                return Err(error);
            }
        };
        Pool::confirm(arrays, &mut wanted);
        arrays.write_set(
            entry.vip,
            Set {
                offset,
                count,
                leaving,
                version: held.version.wrapping_add(1),
            },
        );
        pool.release_set(held);
    } else {
        Pool::confirm(arrays, &mut wanted);
    }
    arrays.write_route(entry.vip, next);
    for id in gone {
        pool.release(arrays, id);
    }
    Ok(())
}

/// Switches apps to another mode, without any other change. Returns those that were in another mode.
pub(super) fn flip(arrays: &Arrays, vips: &[u32], mode: Mode) -> Vec<u32> {
    let differs = |vip: &u32| {
        let (route, _) = arrays.slot(*vip);
        let differs = route.present && !route.is_service() && route.mode != mode;
        if differs {
            arrays.write_route(*vip, Route { mode, ..route });
        }
        differs
    };
    vips.iter().copied().filter(differs).collect()
}

/// The next packet to a VIP without an entry raises a miss again.
pub(super) fn expect_miss(arrays: &Arrays, vip: u32) {
    let (route, _) = arrays.slot(vip);
    if vip < VIPS_MAX && !route.present {
        write_absent(arrays, vip, route);
    }
}

/// Begins another sleep of a VIP without an entry.
fn write_absent(arrays: &Arrays, vip: u32, before: Route) {
    let absent = Route {
        owner: Owner::App {
            share: 0,
            sleep: before.sleep().wrapping_add(1),
        },
        ..Route::ABSENT
    };
    arrays.write_route(vip, absent);
}

/// Removes a pod from an app's backends, without any other change.
pub(super) fn withdraw(
    arrays: &Arrays,
    pool: &Pool,
    vip: u32,
    pod: Ipv6Addr,
) -> Result<(), DatapathError> {
    let (route, set) = arrays.slot(vip);
    let mut members = Vec::new();
    if route.present && !route.is_service() {
        pool::members(arrays, set, &mut members);
    }
    let before = members.len();
    members.retain(|member| member.row.key.0 != pod.octets());
    if members.len() == before {
        return Ok(());
    }
    let backend = |member: &Member| Backend {
        address: member.row.key.0.into(),
        port: member.row.key.1,
        weight: member.row.weight,
    };
    let entry = Entry {
        vip,
        mode: route.mode,
        share: route.share(),
        backends: members.iter().map(backend).collect(),
        leased: route.leased,
        asleep: route.asleep,
        gone: route.gone,
        port: route.port,
        protocol: route.protocol.number(),
    };
    publish(arrays, pool, &entry)
}

/// Removes a VIP's entry.
pub(super) fn forget(arrays: &Arrays, pool: &Pool, vip: u32) {
    let (route, set) = arrays.slot(vip);
    if !route.present || route.is_service() {
        return;
    }
    write_absent(arrays, vip, route);
    arrays.write_set(vip, Set::default());
    pool.release_all(arrays, set);
}

/// Route and set of an app's slot; a set without a route has no owner.
fn own_slot(arrays: &Arrays, vip: u32) -> Result<(Route, Set), DatapathError> {
    let (route, set) = arrays.slot(vip);
    if route.present && route.is_service() {
        return Err(DatapathError::NotAnApp { vip });
    }
    let nothing = Set {
        version: set.version,
        ..Set::default()
    };
    Ok((route, if route.present { set } else { nothing }))
}

/// The backends of an entry, sorted. Those without weight keep their connections only.
fn wanted(entry: &Entry) -> Vec<Member> {
    let mut wanted: Vec<Member> = entry
        .backends
        .iter()
        .map(|backend| Member {
            row: Row {
                key: (backend.address.octets(), backend.port),
                flags: if backend.weight == 0 { 0 } else { FOR_CLUSTER },
                weight: backend.weight,
            },
            id: None,
        })
        .collect();
    wanted.sort_unstable_by_key(|member| member.row.key);
    wanted.dedup_by_key(|member| member.row.key);
    wanted
}

/// Assigns existing ids from the slot. Returns the ids of backends that are not wanted any more.
fn take_ids(arrays: &Arrays, held: Set, wanted: &mut [Member]) -> Vec<u32> {
    let mut had = Vec::new();
    pool::members(arrays, held, &mut had);
    let mut gone = Vec::new();
    for member in had {
        match wanted.binary_search_by_key(&member.row.key, |wanted| wanted.row.key) {
            Ok(place) if wanted[place].id.is_none() => wanted[place].id = member.id,
            _ => gone.extend(member.id),
        }
    }
    gone
}

/// The ids in the order of the set, and the number of those for new connections.
fn in_order(members: &[Member]) -> (Vec<u32>, usize) {
    let ids = |picked: bool| {
        let some = members.iter().filter(move |m| (m.row.flags != 0) == picked);
        some.filter_map(Member::clean_id)
    };
    let mut all: Vec<u32> = ids(true).collect();
    let picked = all.len();
    all.extend(ids(false));
    (all, picked)
}

/// The route for an entry; the sleep generation increases when a sleep begins.
fn next_route(old: Route, entry: &Entry, wanted: &[Member]) -> Route {
    let begins_sleep = entry.asleep && !(old.present && old.asleep);
    Route {
        mode: entry.mode,
        leased: entry.leased,
        asleep: entry.asleep,
        present: true,
        gone: entry.gone,
        port: entry.port,
        protocol: Protocol::of(entry.protocol),
        weighted: pool::differ(wanted.iter().map(|member| &member.row)),
        owner: Owner::App {
            share: entry.share,
            sleep: old.sleep().wrapping_add(u32::from(begins_sleep)),
        },
        ..Route::ABSENT
    }
}

#[cfg(test)]
mod tests;
