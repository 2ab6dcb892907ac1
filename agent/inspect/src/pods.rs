//! The pods of a node: whose each is, and what it is wired to.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::output::{Column, Row, age};
use super::wiring::{Wired, Wiring};
use dormouse_agent_pod::names::mac_text;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its address.
    pub address: Ipv6Addr,
    /// Its IPv4 address, where it has one.
    pub address4: Option<Ipv4Addr>,
    /// Who it is: network/container/interface; none if the journal does not say.
    pub holder: Option<String>,
    /// As the journal has it: `reserved`, `live`, `releasing`; `stray` if it has no lease.
    pub state: &'static str,
    /// The set of pods that it is of; below 1,024 it is of none that anyone named.
    pub cohort: u32,
    /// How long it has had its address.
    pub age_seconds: Option<u64>,
    /// The host's end of its link; none: it is not in this network namespace.
    pub interface: Option<String>,
    /// The number of the host's end.
    pub ifindex: Option<u32>,
    /// The bridge behind which it is.
    pub bridge: Option<String>,
    /// Its link-layer address.
    pub mac: Option<String>,
    /// Its namespace.
    pub netns: Option<String>,
    /// The data path knows it; none: the data path could not be read.
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

/// The pods, by address.
pub fn rows(wiring: &Wiring) -> Vec<PodRow> {
    let all = wiring.all().into_iter();
    all.filter(|wired| wired.state != "resting")
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
            age_seconds: wired.held.map(|held| held.as_secs()),
            interface: link.map(|link| link.name.clone()),
            ifindex: link.map(|link| link.index).or(row.map(|row| row.ifindex)),
            bridge: wired.bridge,
            mac: row.map(|row| row.mac).or(entry).map(mac_text),
            netns: wired.netns,
            in_data_path: wired.row.map(|row| row.is_some()),
        }
    }
}
