//! `get backends`: connections to each backend, started and open, as counted for the autoscaler.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use dormouse_agent_datapath::{BackendCount, Pinned, octets};
use dormouse_ebpf::load::Tally;
use serde::Serialize;

use super::names::Names;
use super::output::{Column, Row};

/// A backend of a Service or an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendRow {
    /// The Service port, or the app.
    pub service: String,
    /// Address of the backend, after DNAT.
    pub address: IpAddr,
    /// Port of the backend.
    pub port: u16,
    /// The backend is a pod of this node.
    pub local: bool,
    /// Weight for new connections; 0: no new ones (terminating).
    pub weight: u16,
    /// Connections translated packet by packet (flows).
    pub flows: Counted,
    /// Connections translated by the socket hooks, connected and unconnected.
    pub sockets: Counted,
    /// Id of the backend in the maps.
    pub id: u32,
}

/// Connections since the backend got its id (modulo 2^32), and connections now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Started.
    pub started: u32,
    /// Open.
    pub open: u32,
}

impl From<Tally> for Counted {
    fn from(tally: Tally) -> Self {
        Self {
            started: tally.begun,
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
        ("STARTED", false),
        ("OPEN", false),
        ("FLOWS", true),
        ("SOCKETS", true),
        ("ID", true),
    ];

    fn cells(&self) -> Vec<String> {
        let (flows, sockets) = (self.flows, self.sockets);
        let both = |counted: Counted| format!("{}/{}", counted.started, counted.open);
        vec![
            self.service.clone(),
            SocketAddr::new(self.address, self.port).to_string(),
            if self.local { "yes" } else { "no" }.to_owned(),
            self.weight.to_string(),
            flows.started.wrapping_add(sockets.started).to_string(),
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

/// The backends of all slots, or of those whose owner is `wanted` (a Service as `namespace/name`, with or without its
/// port; an app's address), by owner and address. The slots of a Service share backends: each backend is listed once.
pub fn rows(pinned: &Pinned, names: &Names, wanted: Option<&str>) -> Vec<BackendRow> {
    let mut rows = Vec::new();
    let mut listed = BTreeSet::new();
    for (slot, _, _) in pinned.followed() {
        let Some(service) = names.of_slot(pinned, slot) else {
            continue;
        };
        if wanted.is_some_and(|wanted| !is(&service, wanted)) {
            continue;
        }
        for backend in pinned.backend_counts(slot) {
            if listed.insert(backend.id) {
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
    fn a_name_matches_with_or_without_its_port() {
        assert!(is("shop/web:http", "shop/web"));
        assert!(is("shop/web:http", "shop/web:http"));
        assert!(!is("shop/web:http", "shop/we"));
        assert!(!is("shop/web-2:http", "shop/web"));
        assert!(is("app fd00:10::7", "fd00:10::7"));
        assert!(!is("app fd00:10::7:1", "fd00:10::7"));
    }
}
