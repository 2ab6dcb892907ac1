//! `get neighbours`: the permanent and proxy neighbour entries of a node.

use std::net::IpAddr;

use dormouse_agent_datapath::Verdict;
use dormouse_agent_pod::names::mac_text;
use serde::Serialize;

use super::output::{Column, Row};
use super::wiring::Wiring;

/// A neighbour entry that does not age.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NeighbourRow {
    /// IP address of the entry.
    pub address: IpAddr,
    /// `permanent`: maps the address to a link-layer address; `proxy`: the kernel answers solicitations for it.
    pub kind: &'static str,
    /// Interface of the entry.
    pub interface: String,
    /// Link-layer address; none in a proxy entry.
    pub mac: Option<String>,
    /// The pod that holds the address: network/container/interface.
    pub holder: Option<String>,
}

/// The entries, ordered by address.
pub fn rows(wiring: &Wiring) -> Vec<NeighbourRow> {
    let entries = wiring.kernel().neighbours.iter();
    let lasting = entries.filter(|entry| entry.permanent || entry.proxy);
    let mut rows: Vec<_> = lasting
        .map(|entry| NeighbourRow {
            address: entry.address,
            kind: if entry.proxy { "proxy" } else { "permanent" },
            interface: wiring.kernel().name(entry.ifindex),
            mac: entry.mac.map(mac_text),
            holder: wiring.holder(entry.address).map(ToString::to_string),
        })
        .collect();
    rows.sort_unstable_by_key(|row| (row.address, row.kind));
    rows
}

/// Neighbour solicitations at the uplink for the node's prefix: answered, and ignored (no such pod).
pub fn solicitations(stats: &[(Verdict, u64)]) -> (u64, u64) {
    let of = |wanted| {
        stats
            .iter()
            .filter(|(verdict, _)| *verdict == wanted)
            .map(|(_, count)| count)
            .sum()
    };
    (of(Verdict::Advertised), of(Verdict::Solicited))
}

impl Row for NeighbourRow {
    const KIND: &'static str = "NodeNeighbourList";
    const COLUMNS: &'static [Column] = &[
        ("ADDRESS", false),
        ("KIND", false),
        ("INTERFACE", false),
        ("MAC", false),
        ("HOLDER", false),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.address.to_string(),
            self.kind.to_owned(),
            self.interface.clone(),
            self.mac.clone().unwrap_or_default(),
            self.holder.clone().unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        format!("neighbour/{}", self.address)
    }
}
