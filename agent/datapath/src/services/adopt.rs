//! Adoption of the previous agent's slots: by the service ports whose VIPs point to them; the rest is removed after the sync.

use std::collections::HashMap;
use std::sync::Arc;

use dormouse_agent_services::{ServicePort, Services, Vip};
use dormouse_ebpf::maps::{
    FRONTEND_CLUSTER_IP, FRONTEND_EXTERNAL_IP, FRONTEND_LOCAL_BACKEND, FRONTEND_SOURCE_RANGES,
    FRONTEND_VIP,
};
use dormouse_ebpf::service::{Protocol, Route, SLOTS_MAX, VIPS_MAX};

use super::frontends::{key, number};
use super::group::{Group, Role};
use super::{Ledger, Registry, Served, layout};
use crate::arrays::Arrays;
use crate::bits::Bits;

/// Slots of the previous agent that no service port has adopted.
#[derive(Debug)]
pub(super) struct Leftover {
    slots: Bits,
    /// The slots of each group except the first, by the first.
    others: HashMap<u32, Vec<u32>>,
}

impl Registry {
    /// Records the slots in use; their owners are not known yet.
    pub(super) fn record_leftover(&mut self, arrays: &Arrays) {
        for slot in 0..SLOTS_MAX {
            let (route, _) = arrays.slot(slot);
            if !route.present || !route.is_service() {
                continue;
            }
            if slot >= VIPS_MAX {
                self.slots.mark(slot - VIPS_MAX);
            }
            let Some(base) = route.group() else {
                continue;
            };
            let leftover = self.leftover.get_or_insert_with(|| Leftover {
                slots: Bits::none(SLOTS_MAX),
                others: HashMap::new(),
            });
            leftover.slots.put(slot);
            if slot != base {
                leftover.others.entry(base).or_default().push(slot);
            }
        }
    }

    /// Adopts the group to which the VIPs of a service port point.
    pub(super) fn claim(
        &mut self,
        arrays: &Arrays,
        services: &Services,
        port: &Arc<ServicePort>,
    ) -> Option<Group> {
        self.leftover.as_ref()?;
        let vips = services.vips_of(port);
        let mut won = vips.iter().filter(|vip| {
            let found = services.frontend(vip);
            found.is_some_and(|found| found.port.id == port.id)
        });
        let direct = self.direct_slot(port.addresses.cluster_ip);
        let base = won.find_map(|vip| {
            let base = self.base_before(arrays, self.slot_before(arrays, vip)?)?;
            (base >= VIPS_MAX && !self.is_direct(base) || direct == Some(base)).then_some(base)
        })?;
        let leftover = self.leftover.as_mut()?;
        let mut group = Group::NONE;
        group.set(Role::Internal, Some(base));
        for slot in leftover.others.remove(&base).unwrap_or_default() {
            group.set(Role::of(arrays.slot(slot).0), Some(slot));
        }
        for slot in group.slots() {
            leftover.slots.take(slot);
        }
        Some(group)
    }

    /// The first slot of the group that a slot belongs to, if the group is not adopted yet.
    fn base_before(&self, arrays: &Arrays, slot: u32) -> Option<u32> {
        let leftover = self.leftover.as_ref()?;
        let base = arrays.slot(slot).0.group()?;
        let is_first = arrays.slot(base).0.group() == Some(base);
        (is_first && leftover.slots.has(base)).then_some(base)
    }

    /// The slot to which the maps send a VIP.
    fn slot_before(&self, arrays: &Arrays, vip: &Vip) -> Option<u32> {
        let direct = self.direct_slot(vip.address).filter(|slot| {
            let (route, _) = arrays.slot(*slot);
            let protocol = Protocol::of(number(vip.protocol));
            route.present && route.port == vip.port && route.protocol == protocol
        });
        let entry = || self.frontends.get(&key(vip, FRONTEND_VIP));
        direct.or_else(|| Some(entry()? & !FRONTEND_SOURCE_RANGES))
    }

    /// Removes everything that no source has named; called when all sources are synced.
    pub(crate) fn settle(&mut self, ledger: Ledger<'_>) -> Served {
        let mut served = Served::default();
        self.settled = true;
        let services = ledger.services;
        for port in services.ports() {
            let group = self.groups.get(&port.id);
            if group.is_some_and(|group| group.unsettled) {
                self.serve_again(ledger, port, &mut served);
            }
        }
        for kind in [
            FRONTEND_VIP,
            FRONTEND_CLUSTER_IP,
            FRONTEND_EXTERNAL_IP,
            FRONTEND_LOCAL_BACKEND,
        ] {
            for key in self.frontends.keys(kind) {
                if !self.is_claimed(services, &key) {
                    // Removing an entry needs no room.
                    let _ = self.frontends.set(ledger.arrays, key, None);
                }
            }
        }
        self.sweep_slots(ledger);
        self.sweep_extras();
        self.sweep_shut(ledger.arrays, services);
        self.frontends.sweep(ledger.arrays);
        ledger.pool.retire_forgotten(ledger.arrays);
        served
    }

    fn sweep_slots(&mut self, ledger: Ledger<'_>) {
        let Some(leftover) = self.leftover.take() else {
            return;
        };
        for slot in leftover.slots.iter() {
            let (route, set) = ledger.arrays.slot(slot);
            self.clear(ledger.arrays, ledger.services, slot);
            if slot >= VIPS_MAX && !self.is_direct(slot) {
                self.slots.release(slot - VIPS_MAX, ledger.pool.now());
            }
            // The other slots of a group have no backends of their own.
            if route.group() == Some(slot) {
                ledger.pool.release_all(ledger.arrays, set);
            }
        }
    }

    /// Removes options and source ranges of slots without a group, left by an agent that was killed.
    fn sweep_extras(&mut self) {
        let mut owned = Bits::none(SLOTS_MAX);
        for slot in self.groups.slots() {
            owned.put(slot);
        }
        let extras: Vec<u32> = self.slot_options.iter().map(|(slot, _)| *slot).collect();
        for slot in extras.into_iter().filter(|slot| !owned.has(*slot)) {
            self.slot_options.take(&slot);
        }
        for slot in self.source_ranges.slots() {
            if !owned.has(slot) {
                self.source_ranges.restrict(slot, &[]);
            }
        }
    }

    /// Clears direct slots of addresses that are no cluster IPs any more.
    fn sweep_shut(&self, arrays: &Arrays, services: &Services) {
        for range in &self.direct {
            for slot in range.base..layout::end(range) {
                let (route, _) = arrays.slot(slot);
                let shut = route.present && route.is_service() && route.group().is_none();
                let is_served = || services.table().is_cluster_ip(layout::address(range, slot));
                if shut && !is_served() {
                    arrays.write_route(slot, Route::ABSENT);
                }
            }
        }
    }
}
