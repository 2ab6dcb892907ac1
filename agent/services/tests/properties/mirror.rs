//! A minimal data plane that is only updated by changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_agent_services::port::Kind;
use dormouse_agent_services::services::Health;
use dormouse_agent_services::{Changes, PortId, ServiceKey, ServicePort, Services, Vip};

/// What answers at a VIP.
type Place = (PortId, Kind, bool);

#[derive(PartialEq, Debug, Default)]
pub(crate) struct Mirror {
    ports: BTreeMap<PortId, Arc<ServicePort>>,
    vips: BTreeMap<Vip, Place>,
    health: BTreeMap<ServiceKey, [Option<Health>; 2]>,
}

impl Mirror {
    pub(crate) fn follow(&mut self, changes: &Changes, services: &Services) {
        for change in &changes.ports {
            match (change.before(), change.after()) {
                (_, Some(new)) => drop(self.ports.insert(new.id.clone(), Arc::clone(new))),
                (Some(old), None) => drop(self.ports.remove(&old.id)),
                (None, None) => {}
            }
        }
        for vip in &changes.vips {
            match services.frontend(vip) {
                Some(found) => {
                    let place = (found.port.id.clone(), found.kind, found.limited);
                    self.vips.insert(*vip, place);
                }
                None => drop(self.vips.remove(vip)),
            }
        }
        for service in &changes.health {
            let health = services.health_checks(service);
            match health {
                [None, None] => drop(self.health.remove(service)),
                _ => drop(self.health.insert(service.clone(), health)),
            }
        }
    }

    pub(crate) fn ports(&self) -> Vec<Arc<ServicePort>> {
        self.ports.values().cloned().collect()
    }
}

/// Every service port in force, sorted.
pub(crate) fn served(services: &Services) -> Vec<Arc<ServicePort>> {
    let mut ports: Vec<_> = services.ports().cloned().collect();
    ports.sort_by(|a, b| a.id.cmp(&b.id));
    ports
}
