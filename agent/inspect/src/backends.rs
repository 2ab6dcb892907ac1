//! What each backend has been given by this node, and has still: what an autoscaler counts, for people.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use dormouse_ebpf::load::Tally;
use serde::Serialize;

use super::names::Names;
use super::output::{Column, Row};
use dormouse_agent_datapath::{BackendCount, Pinned, octets};

/// A backend of a Service or an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRow {
    /// The Service and its port, or the app.
    pub service: String,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
    /// Its weight among the others; 0: it only keeps what it has.
    pub weight: u16,
    /// Flows of packets.
    pub flows: Counted,
    /// Connections of sockets, datagrams' too.
    pub sockets: Counted,
    /// Its id in the maps.
    pub id: u32,
}

/// How many there were, since the backend got its id, modulo 2^32; and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Begun.
    pub begun: u32,
    /// Of them, open.
    pub open: u32,
}

impl From<Tally> for Counted {
    fn from(tally: Tally) -> Self {
        Self {
            begun: tally.begun,
            open: tally.open(),
        }
    }
}

impl Row for BackendRow {
    const KIND: &'static str = "NodeBackendList";
    const COLUMNS: &'static [Column] = &[
        ("SERVICE", false),
        ("BACKEND", false),
        ("LOCAL", false),
        ("WEIGHT", false),
        ("BEGUN", false),
        ("OPEN", false),
        ("FLOWS", true),
        ("SOCKETS", true),
        ("ID", true),
    ];

    fn cells(&self) -> Vec<String> {
        let (flows, sockets) = (self.flows, self.sockets);
        let both = |counted: Counted| format!("{}/{}", counted.begun, counted.open);
        vec![
            self.service.clone(),
            SocketAddr::new(self.address, self.port).to_string(),
            if self.local { "yes" } else { "no" }.to_owned(),
            self.weight.to_string(),
            flows.begun.wrapping_add(sockets.begun).to_string(),
            flows.open.saturating_add(sockets.open).to_string(),
            both(flows),
            both(sockets),
            self.id.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("backend/{}", SocketAddr::new(self.address, self.port))
    }
}

/// The backends of all slots, or of those whose name is `wanted` (a Service as `namespace/name`, with or without its
/// port; an app's address), by name and address. A Service's slots share backends: each is told once.
pub fn rows(pinned: &Pinned, names: &Names, wanted: Option<&str>) -> Vec<BackendRow> {
    let mut rows = Vec::new();
    let mut told = BTreeSet::new();
    for (slot, _, _) in pinned.followed() {
        let Some(service) = names.of_slot(pinned, slot) else {
            continue;
        };
        if wanted.is_some_and(|wanted| !is(&service, wanted)) {
            continue;
        }
        for backend in pinned.backend_counts(slot) {
            if told.insert(backend.id) {
                rows.push(row(pinned, service.clone(), &backend));
            }
        }
    }
    rows.sort_unstable_by(|a, b| {
        (&a.service, a.address, a.port).cmp(&(&b.service, b.address, b.port))
    });
    rows
}

fn is(name: &str, wanted: &str) -> bool {
    let rest = name
        .strip_prefix("app ")
        .unwrap_or(name)
        .strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':') && wanted.contains('/'))
}

fn row(pinned: &Pinned, service: String, backend: &BackendCount) -> BackendRow {
    BackendRow {
        service,
        address: backend.address,
        port: backend.port,
        local: pinned.facts().is_local(&octets(backend.address)),
        weight: backend.weight,
        flows: backend.load.flows.into(),
        sockets: backend.load.sockets.into(),
        id: backend.id,
    }
}

#[cfg(test)]
mod tests {
    use super::is;

    #[test]
    fn a_name_is_meant_with_or_without_its_port() {
        assert!(is("shop/web:http", "shop/web"));
        assert!(is("shop/web:http", "shop/web:http"));
        assert!(!is("shop/web:http", "shop/we"));
        assert!(!is("shop/web-2:http", "shop/web"));
        assert!(is("app fd00:10::7", "fd00:10::7"));
        assert!(!is("app fd00:10::7:1", "fd00:10::7"));
    }
}
