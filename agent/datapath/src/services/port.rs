//! Programming of one service port: its slots, backends and words, all or nothing.

use std::sync::Arc;

use dormouse_agent_services::{ServicePort, Services};
use dormouse_ebpf::maps::SlotOptions;
use dormouse_ebpf::service::{Route, SLOTS_MAX, Set, VIPS_MAX};

use super::backend_set::{self, BackendSet, Keep};
use super::group::{Group, Role};
use super::layout::DYNAMIC_FROM;
use super::vips::is_open;
use super::{Ledger, Registry, source_ranges};
use crate::arrays::Arrays;
use crate::error::DatapathError;
use crate::pool::{self, Pool};

/// A service port's part of the maps while it is put together.
struct Draft {
    group: Group,
    /// Slots that the group did not have before.
    taken: Vec<u32>,
    /// Where the backend set begins; the same as before if the ids did not change.
    offset: u32,
    /// The set of each slot.
    sets: Vec<(u32, Set)>,
}

impl Registry {
    /// Programs a service port. Without room, it stays unchanged. Slots that it does not need any more are removed when no word
    /// refers to them.
    pub(super) fn serve_port(
        &mut self,
        ledger: Ledger<'_>,
        port: &Arc<ServicePort>,
        retired: &mut Vec<Group>,
    ) -> Result<(), DatapathError> {
        let known = self.groups.get(&port.id);
        let before = known
            .filter(|group| self.is_at_home(group, port))
            .or_else(|| self.claim(ledger.arrays, ledger.services, port));
        let mut backends = std::mem::take(&mut self.backends);
        let outcome = self.put(ledger, port, &mut backends, before);
        self.backends = backends;
        let group = match outcome {
            Ok(group) => group,
            Err(error) => {
                if let Some(before) = before {
                    self.groups.put(port, before);
                }
                return Err(error);
            }
        };
        retired.extend(unneeded(port, before, group));
        let group = needed(port, group);
        let old = self.groups.put(port, group);
        if let Some(old) = old.filter(|old| old.slot(Role::Internal) != group.slot(Role::Internal))
        {
            retired.push(old);
        }
        self.shed.remove(&port.id);
        Ok(())
    }

    /// Every step that can fail comes before the first that programs can see.
    fn put(
        &mut self,
        ledger: Ledger<'_>,
        port: &Arc<ServicePort>,
        backends: &mut BackendSet,
        before: Option<Group>,
    ) -> Result<Group, DatapathError> {
        let held = before.map_or_else(Set::default, |group| whole(ledger.arrays, &group));
        pool::members(ledger.arrays, held, &mut self.had);
        backends.fill(port, &self.had, self.keep(port), &self.silent);
        let mut draft = Draft {
            group: before.unwrap_or(Group::NONE),
            taken: Vec::new(),
            offset: held.offset,
            sets: Vec::new(),
        };
        draft.group.unsettled = backends.unsettled;
        let ready = self
            .acquire(ledger, port, backends, &mut draft)
            .and_then(|()| self.prepare(ledger.services, port, &draft.group))
            .and_then(|()| sets(port, backends, &draft.group, draft.offset));
        match ready {
            Ok(sets) => draft.sets = sets,
            Err(error) => {
                self.give_back(ledger, backends, &draft, held);
                return Err(error);
            }
        }
        self.show(ledger, port, backends, &draft);
        if held.offset != draft.offset {
            ledger.pool.release_set(held);
        }
        for id in backends.gone.drain(..) {
            ledger.pool.release(ledger.arrays, id);
        }
        Ok(draft.group)
    }

    /// Releases everything that was allocated and that no program has seen.
    fn give_back(
        &mut self,
        ledger: Ledger<'_>,
        backends: &mut BackendSet,
        draft: &Draft,
        held: Set,
    ) {
        ledger.pool.undo(ledger.arrays, &mut backends.members);
        if draft.offset != held.offset {
            ledger.pool.release_ids(draft.offset, self.ids.len());
        }
        for slot in &draft.taken {
            self.slot_options.take(slot);
            self.source_ranges.restrict(*slot, &[]);
            if !self.is_direct(*slot) {
                self.slots.undo(slot - VIPS_MAX);
            }
        }
    }

    /// Allocates ids for new backends, slots for new roles, and an extent for the set if it changed.
    fn acquire(
        &mut self,
        ledger: Ledger<'_>,
        port: &ServicePort,
        backends: &mut BackendSet,
        draft: &mut Draft,
    ) -> Result<(), DatapathError> {
        let group = &mut draft.group;
        let held = whole(ledger.arrays, group);
        for role in Role::ALL {
            if role.is_of(port) && group.slot(role).is_none() {
                let slot = self.new_slot(ledger, port, role)?;
                draft.taken.push(slot);
                group.set(role, Some(slot));
            }
        }
        ledger.pool.admit(ledger.arrays, &mut backends.members)?;
        backends.ids(port.internal, &mut self.ids);
        if !pool::holds(ledger.arrays, held, &self.ids) {
            draft.offset = ledger.pool.write(ledger.arrays, &self.ids)?;
        }
        Ok(())
    }

    /// Allocates a slot for a role; the cluster IP's direct slot, if it is free.
    fn new_slot(
        &mut self,
        ledger: Ledger<'_>,
        port: &ServicePort,
        role: Role,
    ) -> Result<u32, DatapathError> {
        if role == Role::Internal
            && let Some(slot) = self.direct_slot(port.addresses.cluster_ip)
        {
            let (route, _) = ledger.arrays.slot(slot);
            if !route.present || route.is_service() && route.group().is_none() {
                return Ok(slot);
            }
        }
        let slot = self
            .slots
            .take_from(DYNAMIC_FROM - VIPS_MAX, ledger.pool.now());
        let slot =
            slot.ok_or_else(|| DatapathError::full("slots of Services", SLOTS_MAX - VIPS_MAX))?;
        Ok(slot + VIPS_MAX)
    }

    /// Writes the options and source ranges of slots, before any route uses them.
    fn prepare(
        &mut self,
        services: &Services,
        port: &ServicePort,
        group: &Group,
    ) -> Result<(), DatapathError> {
        let clients = self.clients(port, group);
        for (role, slot) in slots(group).filter(|(role, _)| role.is_of(port)) {
            if let Some(options) = slot_options(port, role, group, clients) {
                self.slot_options.put(slot, options)?;
            }
            if matches!(role, Role::External | Role::Guarded) {
                let ranges = source_ranges::ranges(services.node(), port, slot);
                self.source_ranges.admit(slot, &ranges)?;
            }
        }
        Ok(())
    }

    /// Writes everything that programs see; nothing here can fail.
    fn show(
        &mut self,
        ledger: Ledger<'_>,
        port: &Arc<ServicePort>,
        backends: &mut BackendSet,
        draft: &Draft,
    ) {
        let (services, arrays) = (ledger.services, ledger.arrays);
        let group = &draft.group;
        Pool::confirm(arrays, &mut backends.members);
        for (slot, set) in &draft.sets {
            show_set(arrays, *slot, *set);
        }
        let base = group.slot(Role::Internal).unwrap_or_default();
        let clients = self.clients(port, group);
        for (role, slot) in slots(group).filter(|(role, _)| role.is_of(port)) {
            let route = if role == Role::Internal {
                self.internal_route(services, port, backends, slot)
            } else {
                backends.route(port, role, base)
            };
            show_route(arrays, slot, route);
            if slot_options(port, role, group, clients).is_none() {
                self.slot_options.take(&slot);
            }
            if matches!(role, Role::External | Role::Guarded) {
                let ranges = source_ranges::ranges(services.node(), port, slot);
                self.source_ranges.restrict(slot, &ranges);
            }
        }
    }

    /// The route of the cluster IP's direct slot. It is found by the address alone, so it must not answer for a VIP of another
    /// Service or another slot.
    fn internal_route(
        &self,
        services: &Services,
        port: &Arc<ServicePort>,
        backends: &BackendSet,
        base: u32,
    ) -> Route {
        if self.is_direct(base) && !is_open(services, port) {
            backend_set::shut(Some(base))
        } else {
            backends.route(port, Role::Internal, base)
        }
    }

    /// The number of the group in affinity entries. It changes when affinity is switched off: if it is switched on later, old
    /// entries do not count.
    fn clients(&self, port: &ServicePort, group: &Group) -> u32 {
        let base = group.slot(Role::Internal).unwrap_or_default();
        let Some(options) = self.slot_options.get(&base) else {
            return base + 1;
        };
        if options.affinity_s != 0 && port.affinity_s.is_none() {
            options.group.wrapping_add(1 << CLIENTS_SHIFT)
        } else {
            options.group
        }
    }

    /// Which backends stay although the service port does not list them.
    fn keep(&self, port: &ServicePort) -> Keep {
        let service = &port.id.service;
        let api_server = (&*service.namespace, &*service.name) == ("default", "kubernetes");
        if api_server && port.backends.is_empty() {
            Keep::All
        } else if self.settled {
            Keep::Standing
        } else {
            Keep::Unheard
        }
    }

    /// Whether the group's first slot is suitable for the service port: not another cluster IP's direct slot.
    fn is_at_home(&self, group: &Group, port: &ServicePort) -> bool {
        let Some(base) = group.slot(Role::Internal) else {
            return false;
        };
        !self.is_direct(base) || self.direct_slot(port.addresses.cluster_ip) == Some(base)
    }

    /// Clears slots that no word refers to, and with the first slot releases the backends of the group.
    pub(super) fn retire(&mut self, ledger: Ledger<'_>, group: Group) {
        let base = group.slot(Role::Internal);
        let held = base.map_or_else(Set::default, |_| whole(ledger.arrays, &group));
        for slot in group.slots() {
            self.clear(ledger.arrays, ledger.services, slot);
            // Slots of a removed range belong to the apps again.
            if !self.is_direct(slot) && slot >= VIPS_MAX {
                self.slots.release(slot - VIPS_MAX, ledger.pool.now());
            }
        }
        ledger.pool.release_all(ledger.arrays, held);
    }

    /// Clears a slot. A direct slot of a cluster IP keeps its mark as a cluster IP.
    pub(super) fn clear(&mut self, arrays: &Arrays, services: &Services, slot: u32) {
        let range = self.range_of(slot);
        let stays = range.is_some_and(|range| {
            let address = super::layout::address(range, slot);
            services.table().is_cluster_ip(address)
        });
        let route = if stays {
            backend_set::shut(None)
        } else {
            Route::ABSENT
        };
        show_route(arrays, slot, route);
        arrays.write_set(slot, Set::default());
        self.slot_options.take(&slot);
        self.source_ranges.restrict(slot, &[]);
    }
}

/// The slots of roles that the service port does not have any more.
fn unneeded(port: &ServicePort, before: Option<Group>, group: Group) -> Option<Group> {
    let before =
        before.filter(|before| before.slot(Role::Internal) == group.slot(Role::Internal))?;
    let mut gone = Group::NONE;
    for (role, slot) in slots(&before).filter(|(role, _)| !role.is_of(port)) {
        gone.set(role, Some(slot));
    }
    (gone != Group::NONE).then_some(gone)
}

/// The group without roles that the service port does not have.
fn needed(port: &ServicePort, mut group: Group) -> Group {
    for role in Role::ALL.into_iter().filter(|role| !role.is_of(port)) {
        group.set(role, None);
    }
    group
}

fn slots(group: &Group) -> impl Iterator<Item = (Role, u32)> + use<> {
    let group = *group;
    // The first slot is written after the others that share its backends: an agent that starts in between reads all of them.
    let roles = Role::ALL.into_iter().rev();
    roles.filter_map(move |role| Some((role, group.slot(role)?)))
}

/// The set with all backends of a group.
fn whole(arrays: &Arrays, group: &Group) -> Set {
    let base = group.slot(Role::Internal);
    base.map_or_else(Set::default, |base| arrays.slot(base).1)
}

fn sets(
    port: &ServicePort,
    backends: &BackendSet,
    group: &Group,
    offset: u32,
) -> Result<Vec<(u32, Set)>, DatapathError> {
    let some = slots(group).filter(|(role, _)| role.is_of(port));
    some.map(|(role, slot)| Ok((slot, backends.set(port, role, offset)?)))
        .collect()
}

fn show_set(arrays: &Arrays, slot: u32, set: Set) {
    let (_, old) = arrays.slot(slot);
    let next = Set {
        version: old.version,
        ..set
    };
    if next != old {
        arrays.write_set(
            slot,
            Set {
                version: old.version.wrapping_add(1),
                ..set
            },
        );
    }
}

fn show_route(arrays: &Arrays, slot: u32, route: Route) {
    if arrays.slot(slot).0 != route {
        arrays.write_route(slot, route);
    }
}

/// The options of a role's slot; sources inside the cluster are redirected from the external slot.
fn slot_options(
    port: &ServicePort,
    role: Role,
    group: &Group,
    clients: u32,
) -> Option<SlotOptions> {
    let internal = (role == Role::External).then(|| group.slot(Role::Inside));
    let internal = internal.flatten().filter(|_| Role::Inside.is_of(port));
    let affinity_s = port.affinity_s.unwrap_or(0);
    let released = role == Role::Internal && clients >> CLIENTS_SHIFT != 0;
    let needed = !matches!(role, Role::Inside | Role::Refused);
    (needed && (affinity_s != 0 || internal.is_some() || released)).then(|| SlotOptions {
        affinity_s,
        group: clients,
        internal_slot: internal.unwrap_or_default(),
        pad: 0,
    })
}

/// Bits above the group's number: how often its affinity entries were invalidated.
const CLIENTS_SHIFT: u32 = 21;
const _: () = assert!(SLOTS_MAX < 1 << CLIENTS_SHIFT);
