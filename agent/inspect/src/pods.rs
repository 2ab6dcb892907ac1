//! `get pods`: the pods of a node, with holder, link and bridge.

use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_agent_pod::names::mac_text;
use serde::Serialize;

use super::output::{Column, Row, age};
use super::wiring::{Wired, Wiring};

/// A pod's address and wiring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// IPv6 address.
    pub address: Ipv6Addr,
    /// IPv4 address, if the pod has one.
    pub address4: Option<Ipv4Addr>,
    /// The holder of the lease: network/container/interface; none for a stray pod.
    pub holder: Option<String>,
    /// State of the lease: `reserved`, `live`, `releasing`; `stray` if there is no lease.
    pub state: &'static str,
    /// The cohort of the pod; below 1,024: no cohort was requested.
    pub cohort: u32,
    /// Age of the lease.
    pub age_seconds: Option<u64>,
    /// Host side of the pod's veth pair; none if it is not in this network namespace.
    pub interface: Option<String>,
    /// ifindex of the host side.
    pub ifindex: Option<u32>,
    /// The bridge of the host side.
    pub bridge: Option<String>,
    /// Link-layer address of the pod.
    pub mac: Option<String>,
    /// Network namespace: a path, or the inode number.
    pub netns: Option<String>,
    /// Whether the data path's pod table has the address; none if the table could not be read.
    pub in_data_path: Option<bool>,
}

impl Row for PodRow {
    const KIND: &'static str = "NodePodList";
    const COLUMNS: &'static [Column] = &[
        ("ADDRESS", false),
        ("HOLDER", false),
        ("STATE", false),
        ("AGE", false),
        ("INTERFACE", false),
        ("BRIDGE", false),
        ("DATAPATH", false),
        ("COHORT", true),
        ("IPV4", true),
        ("MAC", true),
        ("IFINDEX", true),
        ("NETNS", true),
    ];

    fn cells(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let known = self
            .in_data_path
            .map(|known| if known { "known" } else { "unknown" });
        vec![
            self.address.to_string(),
            text(&self.holder),
            self.state.to_owned(),
            self.age_seconds.map(age).unwrap_or_default(),
            text(&self.interface),
            text(&self.bridge),
            known.unwrap_or_default().to_owned(),
            self.cohort.to_string(),
            self.address4
                .map(|address| address.to_string())
                .unwrap_or_default(),
            text(&self.mac),
            self.ifindex
                .map(|index| index.to_string())
                .unwrap_or_default(),
            text(&self.netns),
        ]
    }

    fn name(&self) -> String {
        format!("pod/{}", self.address)
    }
}

/// The pods, ordered by address.
pub fn rows(wiring: &Wiring) -> Vec<PodRow> {
    let all = wiring.all().into_iter();
    all.filter(|wired| wired.state != "quarantined")
        .map(PodRow::of)
        .collect()
}

impl PodRow {
    fn of(wired: Wired) -> Self {
        let row = wired.row.flatten();
        let entry = wired.neighbour.and_then(|(entry, _)| entry.mac);
        let link = wired.link.as_ref();
        Self {
            address: wired.address,
            address4: wired.address4,
            holder: wired.holder.map(|holder| holder.to_string()),
            state: wired.state,
            cohort: wired.suffix.given_cohort(),
            age_seconds: wired.age.map(|age| age.as_secs()),
            interface: link.map(|link| link.name.clone()),
            ifindex: link.map(|link| link.index).or(row.map(|row| row.ifindex)),
            bridge: wired.bridge,
            mac: row.map(|row| row.mac).or(entry).map(mac_text),
            netns: wired.netns,
            in_data_path: wired.row.map(|row| row.is_some()),
        }
    }
}
