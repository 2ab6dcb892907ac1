//! Frontends of service ports: the winner of each VIP, and the marks of addresses.

use std::sync::Arc;

use dormouse_agent_services::{ServicePort, Services, Vip};
use dormouse_ebpf::maps::{
    FRONTEND_CLUSTER_IP, FRONTEND_EXTERNAL_IP, FRONTEND_LOCAL_BACKEND, FRONTEND_SOURCE_RANGES,
    FRONTEND_VIP, FrontendKey,
};
use dormouse_ebpf::service::Route;

use super::backend_set::shut;
use super::frontends::{address_key, key};
use super::group::{Group, Role};
use super::{Ledger, Registry, Served};
use crate::arrays::Arrays;
use crate::error::DatapathError;
use crate::pool;

impl Registry {
    /// Points a VIP to its current winner.
    pub(super) fn resolve(
        &mut self,
        ledger: Ledger<'_>,
        vip: &Vip,
        retired: &mut Vec<Group>,
        served: &mut Served,
    ) {
        let services = ledger.services;
        let winner = services.frontend(vip).map(|found| found.port);
        if let Some(port) = winner
            && self.groups.get(&port.id).is_none()
            && !self.shed.contains(&port.id)
        {
            // It had lost all its VIPs before.
            self.try_port(ledger, port, retired, served);
        }
        if let Err(error) = self.lead(ledger.arrays, services, vip)
            && let Some(port) = winner
        {
            self.shed.insert(port.id.clone());
            served.shed(&port.id, error);
        }
        for port in services.claimants(vip) {
            if wins_any(services, port) {
                self.open_or_shut(ledger.arrays, services, port, vip);
            } else {
                retired.extend(self.leave(&port.id));
            }
        }
    }

    /// Writes the frontend entry of a VIP, unless its winner's slot is a direct one.
    pub(super) fn lead(
        &mut self,
        arrays: &Arrays,
        services: &Services,
        vip: &Vip,
    ) -> Result<(), DatapathError> {
        let value = self.slot_of(services, vip).and_then(|(slot, ranged)| {
            let direct = self.direct_slot(vip.address) == Some(slot);
            (!direct).then_some(if ranged {
                slot | FRONTEND_SOURCE_RANGES
            } else {
                slot
            })
        });
        self.frontends.set(arrays, key(vip, FRONTEND_VIP), value)
    }

    /// The slot that answers at a VIP, and whether source ranges apply.
    fn slot_of(&self, services: &Services, vip: &Vip) -> Option<(u32, bool)> {
        let frontend = services.frontend(vip)?;
        let (role, ranged) = Role::at(&frontend);
        let group = self.groups.get(&frontend.port.id)?;
        Some((group.slot(role)?, ranged))
    }

    /// Opens or closes the cluster IP's direct slot after its VIP was won or lost.
    fn open_or_shut(
        &self,
        arrays: &Arrays,
        services: &Services,
        port: &Arc<ServicePort>,
        vip: &Vip,
    ) {
        let group = self.groups.get(&port.id);
        let base = group.and_then(|group| group.slot(Role::Internal));
        let Some(base) = base.filter(|base| self.is_direct(*base) && cluster_vip(port) == *vip)
        else {
            return;
        };
        let (route, _) = arrays.slot(base);
        let open = route.port != 0;
        if open && !is_open(services, port) {
            arrays.write_route(base, shut(Some(base)));
        } else if !open && is_open(services, port) {
            reopen(arrays, port, base);
        }
    }

    /// Updates the marks of a service port's addresses: cluster IPs, external ones, and backends on this node.
    pub(super) fn mark_addresses(
        &mut self,
        arrays: &Arrays,
        services: &Services,
        port: &ServicePort,
        served: &mut Served,
    ) {
        let mut outcome = self.mark_cluster_ip(arrays, services, port);
        for address in port.addresses.external() {
            let known = services.table().is_external_ip(address).then_some(1);
            let key = address_key(address, FRONTEND_EXTERNAL_IP);
            outcome = outcome.and_then(|()| self.frontends.set(arrays, key, known));
        }
        outcome = outcome.and_then(|()| self.mark_backends(arrays, services, port));
        if let Err(error) = outcome {
            self.shed.insert(port.id.clone());
            served.shed(&port.id, error);
        }
    }

    /// Updates the marks of a service port's backends on this node. Also before its routes are written: a flow records at its
    /// beginning who delivers it.
    pub(super) fn mark_backends(
        &mut self,
        arrays: &Arrays,
        services: &Services,
        port: &ServicePort,
    ) -> Result<(), DatapathError> {
        for backend in port.backends.iter().filter(|backend| backend.local) {
            let vip = Vip {
                address: backend.address,
                port: backend.port,
                protocol: port.id.protocol,
            };
            let known = services.table().is_local_backend(&vip).then_some(1);
            let key = key(&vip, FRONTEND_LOCAL_BACKEND);
            self.frontends.set(arrays, key, known)?;
        }
        Ok(())
    }

    fn mark_cluster_ip(
        &mut self,
        arrays: &Arrays,
        services: &Services,
        port: &ServicePort,
    ) -> Result<(), DatapathError> {
        let address = port.addresses.cluster_ip;
        let is_served = services.table().is_cluster_ip(address);
        let entry = address_key(address, FRONTEND_CLUSTER_IP);
        let Some(slot) = self.direct_slot(address) else {
            return self.frontends.set(arrays, entry, is_served.then_some(1));
        };
        let (route, _) = arrays.slot(slot);
        if is_served && !route.present {
            arrays.write_route(slot, shut(None));
        } else if !is_served && route.present && route.group().is_none() {
            arrays.write_route(slot, Route::ABSENT);
        }
        self.frontends.set(arrays, entry, None)
    }

    /// Whether an entry would be written now.
    pub(super) fn is_claimed(&self, services: &Services, key: &FrontendKey) -> bool {
        let vip = super::frontends::vip(key);
        match key.kind {
            FRONTEND_VIP => vip.is_some_and(|vip| {
                let slot = self.slot_of(services, &vip).map(|(slot, _)| slot);
                slot.is_some_and(|slot| self.direct_slot(vip.address) != Some(slot))
            }),
            FRONTEND_LOCAL_BACKEND => {
                vip.is_some_and(|vip| services.table().is_local_backend(&vip))
            }
            FRONTEND_EXTERNAL_IP => {
                let address = super::frontends::address(key.address);
                services.table().is_external_ip(address)
            }
            FRONTEND_CLUSTER_IP => {
                let address = super::frontends::address(key.address);
                self.direct_slot(address).is_none() && services.table().is_cluster_ip(address)
            }
            _ => true,
        }
    }
}

/// The route of a slot that was closed, from its set: the backends have not changed.
fn reopen(arrays: &Arrays, port: &ServicePort, base: u32) {
    let (_, set) = arrays.slot(base);
    let mut backends = super::BackendSet::default();
    let mut had = Vec::new();
    pool::members(arrays, set, &mut had);
    backends.fill(port, &had, super::backend_set::Keep::All, &[]);
    let route: Route = backends.route(port, Role::Internal, base);
    arrays.write_route(base, route);
}

/// Whether the service port's cluster IP belongs to it unconditionally.
pub(super) fn is_open(services: &Services, port: &Arc<ServicePort>) -> bool {
    let found = services.frontend(&cluster_vip(port));
    found.is_some_and(|found| {
        is_same(found.port, port) && Role::at(&found) == (Role::Internal, false)
    })
}

/// Whether the service port has won any VIP.
pub(super) fn wins_any(services: &Services, port: &Arc<ServicePort>) -> bool {
    let wins = |vip: &Vip| {
        let found = services.frontend(vip);
        found.is_some_and(|found| is_same(found.port, port))
    };
    wins(&cluster_vip(port)) || services.vips_of(port).iter().any(wins)
}

/// The cluster IP and port of a service port.
fn cluster_vip(port: &ServicePort) -> Vip {
    Vip {
        address: port.addresses.cluster_ip,
        port: port.number,
        protocol: port.id.protocol,
    }
}

fn is_same(a: &Arc<ServicePort>, b: &Arc<ServicePort>) -> bool {
    Arc::ptr_eq(a, b) || a.id == b.id
}
