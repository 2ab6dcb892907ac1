//! One Service: its objects, and the service ports computed from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::address::Family;
use crate::backend::{Candidates, candidates};
use crate::change::PortChange;
use crate::few::Few;
use crate::key::{PortId, Protocol, ServiceKey};
use crate::port::ServicePort;
use crate::service::ServiceSpec;
use crate::slice::{Mark, Slice, State};

/// The answer of a health check node port in one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// The port number.
    pub port: u16,
    /// Number of ready local endpoints: 200 if there are any, else 503.
    pub local_endpoints: usize,
}

/// One Service: its objects, and the result of the last sync.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) spec: Option<ServiceSpec>,
    /// Sorted by name.
    slices: Few<(Arc<str>, (Slice, Mark))>,
    /// The current service ports, sorted by id.
    pub(super) ports: Few<Arc<ServicePort>>,
    /// Boxed, because few services have a health check node port.
    health: Option<Box<[Option<Health>; 2]>>,
    /// By family: whether there was an endpoint for a UDP port.
    udp: [bool; 2],
}

/// The result of a refresh.
#[derive(Debug)]
pub(super) struct Refreshed {
    pub(super) ports: Vec<PortChange>,
    /// Whether the health check answer changed.
    pub(super) health: bool,
    /// By family: whether there was or is an endpoint for a UDP port.
    pub(super) udp: [bool; 2],
}

impl Entry {
    /// Sets or removes a slice. Returns the families in which it changed anything.
    pub(super) fn hold(&mut self, name: &Arc<str>, mut slice: Option<(Slice, Mark)>) -> [bool; 2] {
        let family = slice.as_ref().map(|(slice, _)| slice.family);
        let place = self.slices.binary_search_by(|(known, _)| known.cmp(name));
        let known = place.ok().map(|place| &self.slices[place].1);
        if let (Some((slice, _)), Some((known, _))) = (&mut slice, known) {
            slice.follow(known);
        }
        let unchanged = known == slice.as_ref();
        let former = match (place, slice) {
            (Ok(place), Some(slice)) => Some(std::mem::replace(&mut self.slices[place].1, slice)),
            (Ok(place), None) => Some(self.slices.remove(place).1),
            (Err(place), Some(slice)) => {
                self.slices.insert(place, (Arc::clone(name), slice));
                None
            }
            (Err(_), None) => None,
        };
        let former = former.map(|(slice, _)| slice.family);
        Family::ALL.map(|each| !unchanged && (family == Some(each) || former == Some(each)))
    }

    /// Whether no object refers to it any more.
    pub(super) fn is_empty(&self) -> bool {
        self.spec.is_none() && self.slices.is_empty()
    }

    /// Whether the node's zone matters.
    pub(super) fn has_zone_hints(&self) -> bool {
        self.slices().any(Slice::has_zone_hints)
    }

    /// Applies the node's zone to zone hints.
    pub(super) fn set_zone(&mut self, zone: Option<&str>) {
        for (_, (slice, _)) in self.slices.iter_mut() {
            slice.set_zone(zone);
        }
    }

    /// The health check answers, by family.
    pub(super) fn health(&self) -> [Option<Health>; 2] {
        self.health.as_deref().copied().unwrap_or_default()
    }

    /// Computes the service ports from the objects.
    pub(super) fn refresh(&mut self, key: &ServiceKey) -> Refreshed {
        let new = self.served(key);
        let (ports, changes) = diff(&self.ports, new);
        self.ports = ports.into();
        let health = Family::ALL.map(|family| self.health_in(family));
        let health_differs = self.health() != health;
        self.health = (health != [None; 2]).then(|| Box::new(health));
        let udp = Family::ALL.map(|family| self.has_udp(family));
        let had_udp = std::mem::replace(&mut self.udp, udp);
        Refreshed {
            ports: changes,
            health: health_differs,
            udp: [udp[0] || had_udp[0], udp[1] || had_udp[1]],
        }
    }

    fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().map(|(_, (slice, _))| slice)
    }

    fn has_udp(&self, family: Family) -> bool {
        self.slices()
            .any(|slice| slice.family == family && slice.has_udp())
    }

    fn candidates(&self, family: Family, name: &str, protocol: Protocol) -> Candidates {
        candidates(self.slices(), (family, name, protocol))
    }

    /// The service ports of both families, sorted by id.
    fn served(&self, key: &ServiceKey) -> Vec<ServicePort> {
        let mut served = Vec::new();
        let Some(spec) = &self.spec else {
            return served;
        };
        for family in Family::ALL {
            served.extend(spec.ports.iter().filter_map(|port| {
                let candidates = self.candidates(family, &port.name, port.protocol);
                let id = PortId {
                    service: key.clone(),
                    name: Arc::clone(&port.name),
                    protocol: port.protocol,
                    family,
                };
                ServicePort::new(id, spec, port, candidates)
            }));
        }
        served.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        served
    }

    fn health_in(&self, family: Family) -> Option<Health> {
        let mut ports = self.ports.iter();
        let port = ports.find(|port| port.id.family == family)?.health_port?;
        Some(Health {
            port,
            local_endpoints: self.local_endpoints(family),
        })
    }

    /// Number of ready addresses on this node, over all slice ports, whether or not the Service has them.
    fn local_endpoints(&self, family: Family) -> usize {
        let slices = self.slices().filter(|slice| slice.family == family);
        let names: BTreeSet<_> = slices
            .flat_map(|slice| &slice.ports)
            .map(|port| (&*port.name, port.protocol))
            .collect();
        let counts = |state: State| state.has(State::LOCAL) && state.has(State::READY);
        let mut addresses = BTreeSet::new();
        for (name, protocol) in names {
            let all = self.candidates(family, name, protocol);
            let local = all.iter().filter(|candidate| counts(candidate.state));
            addresses.extend(local.map(|candidate| candidate.address));
        }
        addresses.len()
    }
}

/// The new list (with the old ports where nothing differs) and the differences; both lists are sorted by id.
fn diff(
    old: &[Arc<ServicePort>],
    new: Vec<ServicePort>,
) -> (Vec<Arc<ServicePort>>, Vec<PortChange>) {
    let mut ports = Vec::with_capacity(new.len());
    let mut changes = Vec::new();
    let mut old = old.iter().peekable();
    for port in new {
        while let Some(gone) = old.next_if(|old| old.id < port.id) {
            changes.push(PortChange::Removed(Arc::clone(gone)));
        }
        let former = old.next_if(|old| old.id == port.id);
        if let Some(same) = former.filter(|former| ***former == port) {
            ports.push(Arc::clone(same));
            continue;
        }
        let new = Arc::new(port);
        ports.push(Arc::clone(&new));
        changes.push(match former.cloned() {
            Some(old) => PortChange::Replaced { old, new },
            None => PortChange::Added(new),
        });
    }
    changes.extend(old.cloned().map(PortChange::Removed));
    (ports, changes)
}
