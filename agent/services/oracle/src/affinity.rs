//! Session affinity `ClientIP`: the backends that clients were sent to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use dormouse_agent_services::{Backend, Changes, PortId, ServicePort, Set};

/// An affinity entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    address: IpAddr,
    port: u16,
    used_ms: u64,
}

impl Record {
    fn is_of(&self, backend: &Backend) -> bool {
        (self.address, self.port) == (backend.address, backend.port)
    }
}

/// The affinity entries of all clients.
#[derive(Clone, Debug, Default)]
pub struct Affinities {
    ports: HashMap<PortId, HashMap<IpAddr, Vec<Record>>>,
}

impl Affinities {
    /// Records that a client's connection to a service port was sent to this backend.
    pub fn record(&mut self, port: &PortId, client: IpAddr, backend: SocketAddr, now_ms: u64) {
        let clients = self.ports.entry(port.clone()).or_default();
        let records = clients.entry(client).or_default();
        let (address, number) = (backend.ip(), backend.port());
        records.retain(|record| (record.address, record.port) != (address, number));
        records.push(Record {
            address,
            port: number,
            used_ms: now_ms,
        });
    }

    /// The backend of the set to which the client has affinity; of several, the first in textual order.
    pub fn chosen(
        &self,
        port: &ServicePort,
        set: Set,
        client: IpAddr,
        now_ms: u64,
    ) -> Option<Backend> {
        let timeout_ms = u64::from(port.affinity_s?) * 1_000;
        let records = self.ports.get(&port.id)?.get(&client)?;
        let fresh = |record: &&Record| now_ms.saturating_sub(record.used_ms) <= timeout_ms;
        let known = |backend: &Backend| {
            let mut records = records.iter().filter(fresh);
            records.any(|record| record.is_of(backend))
        };
        let backends = port.set(set).filter(known);
        backends.min_by_key(|backend| SocketAddr::new(backend.address, backend.port).to_string())
    }

    /// Removes entries of backends, service ports and affinities that the changes removed.
    pub fn forget(&mut self, changes: &Changes) {
        for change in &changes.ports {
            let Some(old) = change.before() else {
                continue;
            };
            match change.after().filter(|new| new.affinity_s.is_some()) {
                None => drop(self.ports.remove(&old.id)),
                Some(new) => self.keep(new),
            }
        }
    }

    /// Keeps only entries of backends that may still be used.
    fn keep(&mut self, port: &ServicePort) {
        let Some(clients) = self.ports.get_mut(&port.id) else {
            return;
        };
        clients.retain(|_, records| {
            records.retain(|record| {
                let place = (record.address, record.port);
                port.backends.at(place).is_some()
            });
            !records.is_empty()
        });
    }
}
