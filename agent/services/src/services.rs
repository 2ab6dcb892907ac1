//! The state of all services: objects are applied event by event, and a sync recomputes the affected services only.

mod entry;
mod namespace;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::address::Family;
use crate::change::{Changes, PortChange};
use crate::key::ServiceKey;
use crate::node::{Node, NodeAddresses};
use crate::port::{Kind, ServicePort};
use crate::problem::Problem;
use crate::service::Strictness;
use crate::table::{self, Frontend, Table};
use crate::vip::{NodePort, Vip};

pub use entry::Health;
use entry::{Entry, Refreshed};
use namespace::{Namespace, PortNames};

/// The services of one node.
#[derive(Debug)]
pub struct Services {
    node: Node,
    strictness: Strictness,
    zone: Option<Box<str>>,
    /// Without empty namespaces after a sync.
    namespaces: HashMap<Arc<str>, Namespace>,
    port_names: PortNames,
    /// The services to recompute, with the families in which their slices changed.
    touched: BTreeMap<ServiceKey, [bool; 2]>,
    table: Table,
}

impl Services {
    /// Empty, for this node.
    pub fn new(node: Node, strictness: Strictness) -> Self {
        Self {
            node,
            strictness,
            zone: None,
            namespaces: HashMap::new(),
            port_names: PortNames::default(),
            touched: BTreeMap::new(),
            table: Table::default(),
        }
    }

    /// Recomputes what the events since the last sync affect.
    pub fn sync(&mut self) -> Changes {
        let mut changes = Changes::default();
        for (key, touched) in std::mem::take(&mut self.touched) {
            self.refresh(&key, touched, &mut changes);
        }
        changes.vips.sort_unstable();
        changes.vips.dedup();
        for vip in &changes.vips {
            self.report_conflicts(vip, &mut changes.problems);
        }
        changes
    }

    /// Sets the node's addresses. Returns the affected VIPs. Cost: all node ports.
    pub fn set_node_addresses(&mut self, addresses: NodeAddresses) -> Vec<Vip> {
        let mut vips = self.node_port_vips();
        self.node.addresses = addresses;
        vips.extend(self.node_port_vips());
        vips.sort_unstable();
        vips.dedup();
        vips
    }

    /// The node and its cluster.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The service ports by address.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// All service ports, in no particular order.
    pub fn ports(&self) -> impl Iterator<Item = &Arc<ServicePort>> {
        let spaces = self.namespaces.values();
        let entries = spaces.flat_map(|space| space.entries.values());
        entries.flat_map(|entry| &entry.ports)
    }

    /// The service ports of one Service, sorted.
    pub fn ports_of(&self, service: &ServiceKey) -> &[Arc<ServicePort>] {
        let entry = self.entry(&service.namespace, &service.name);
        entry.map_or(&[], |entry| &entry.ports)
    }

    /// The health check answers of a Service, by family; none: no health check node port.
    pub fn health_checks(&self, service: &ServiceKey) -> [Option<Health>; 2] {
        let entry = self.entry(&service.namespace, &service.name);
        entry.map_or([None; 2], Entry::health)
    }

    /// All service ports with this VIP on this node, the winner first.
    pub fn claimants<'a>(
        &'a self,
        vip: &Vip,
    ) -> impl Iterator<Item = &'a Arc<ServicePort>> + use<'a> {
        let answers = self.node.answers_node_ports(vip.address);
        let by_number = answers.then(|| self.table.node_port_claimants(&node_port_of(vip)));
        self.table
            .claimants(vip)
            .chain(by_number.into_iter().flatten())
    }

    /// The service port that answers at a VIP on this node: a Service's address has priority over a node port.
    pub fn frontend(&self, vip: &Vip) -> Option<Frontend<'_>> {
        if let Some(found) = self.table.vip(vip) {
            return Some(found);
        }
        let answers = self.node.answers_node_ports(vip.address);
        let node_port = answers.then(|| node_port_of(vip))?;
        self.table.node_port(&node_port)
    }
}

impl Services {
    fn entry(&self, namespace: &str, name: &str) -> Option<&Entry> {
        let entry = self.namespaces.get(namespace)?.entries.get(name);
        entry.map(AsRef::as_ref)
    }

    /// Recomputes the service ports of a Service; removes it if no object refers to it any more.
    fn refresh_entry(&mut self, key: &ServiceKey) -> Option<Refreshed> {
        let space = self.namespaces.get_mut(&key.namespace)?;
        let entry = space.entries.get_mut(&key.name)?;
        let refreshed = entry.refresh(key);
        if entry.is_empty() {
            space.entries.remove(&key.name);
        }
        if space.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        Some(refreshed)
    }

    fn refresh(&mut self, key: &ServiceKey, touched: [bool; 2], changes: &mut Changes) {
        let Some(refreshed) = self.refresh_entry(key) else {
            return;
        };
        for (scan, family) in changes.scan_flows.iter_mut().zip(Family::ALL) {
            let index = family.index();
            *scan |= touched[index] && refreshed.udp[index];
        }
        if refreshed.health {
            changes.health.push(key.clone());
        }
        for old in refreshed.ports.iter().filter_map(PortChange::before) {
            self.table.remove(old);
        }
        for new in refreshed.ports.iter().filter_map(PortChange::after) {
            self.table.insert(new);
        }
        for change in refreshed.ports.iter().filter(|change| change.moves()) {
            let ports = change.before().into_iter().chain(change.after());
            changes
                .vips
                .extend(ports.flat_map(|port| self.vips_of(port)));
        }
        changes.ports.extend(refreshed.ports);
    }

    /// All VIPs of a service port on this node, whether it wins them or not.
    pub fn vips_of(&self, port: &ServicePort) -> Vec<Vip> {
        let mut vips: Vec<_> = port.vips().collect();
        vips.extend(
            table::node_port(port)
                .iter()
                .flat_map(|node_port| self.vips_at(*node_port)),
        );
        vips
    }

    fn vips_at(&self, node_port: NodePort) -> impl Iterator<Item = Vip> + use<> {
        let NodePort {
            port,
            protocol,
            family,
        } = node_port;
        let addresses = self.node.node_port_addresses(family).into_iter();
        addresses.map(move |address| Vip {
            address,
            port,
            protocol,
        })
    }

    fn node_port_vips(&self) -> Vec<Vip> {
        self.table
            .node_ports()
            .flat_map(|node_port| self.vips_at(*node_port))
            .collect()
    }

    fn report_conflicts(&self, vip: &Vip, problems: &mut Vec<Problem>) {
        let Some(winner) = self.frontend(vip) else {
            return;
        };
        let losers: Vec<_> = match winner.kind {
            Kind::NodePort => self
                .table
                .node_port_claimants(&node_port_of(vip))
                .skip(1)
                .collect(),
            _ => self.table.claimants(vip).skip(1).collect(),
        };
        problems.extend(losers.into_iter().map(|loser| Problem::Conflict {
            vip: *vip,
            winner: winner.port.id.clone(),
            loser: loser.id.clone(),
        }));
    }
}

fn node_port_of(vip: &Vip) -> NodePort {
    NodePort {
        family: Family::of(vip.address),
        port: vip.port,
        protocol: vip.protocol,
    }
}
