//! The pods of a node, as the data path knows them.

use std::net::Ipv6Addr;

use serde::Serialize;

use super::Trouble;
use super::output::{Column, Row};
use crate::datapath::Pinned;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// Its address.
    pub address: Ipv6Addr,
    /// The number of the host's end of its link.
    pub ifindex: u32,
    /// That interface's name; none: it is not in this network namespace.
    pub interface: Option<String>,
    /// Its link-layer address.
    pub mac: String,
}

impl Row for PodRow {
    const KIND: &'static str = "NodePodList";
    const COLUMNS: &'static [Column] = &[
        ("ADDRESS", false),
        ("INTERFACE", false),
        ("MAC", false),
        ("IFINDEX", true),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.address.to_string(),
            self.interface.clone().unwrap_or_default(),
            self.mac.clone(),
            self.ifindex.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("pod/{}", self.address)
    }
}

/// The pods, by address.
pub fn rows(pinned: &Pinned) -> Result<Vec<PodRow>, Trouble> {
    let pods = pinned.pods()?.into_iter();
    let row = pods.map(|(address, pod)| PodRow {
        address,
        ifindex: pod.ifindex,
        interface: nix::net::if_::if_indextoname(pod.ifindex)
            .ok()
            .map(|name| name.to_string_lossy().into_owned()),
        mac: pod.mac.map(|byte| format!("{byte:02x}")).join(":"),
    });
    Ok(row.collect())
}
