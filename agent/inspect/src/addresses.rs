//! `get addresses`: the pod addresses of a node, with holder, age and quarantine.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::output::{Column, Row, age};
use super::wiring::{Wired, Wiring};

/// An address that is leased, in quarantine, or stray (used without a lease).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressRow {
    /// The IPv6 address.
    pub address: Ipv6Addr,
    /// The IPv4 address of the same lease.
    pub address4: Option<Ipv4Addr>,
    /// `reserved`, `live`, `releasing`, `quarantined`, `stray`.
    pub state: String,
    /// The pod that holds the lease: network/container/interface.
    pub holder: String,
    /// Age of the lease.
    pub age_seconds: Option<u64>,
    /// Remaining quarantine, in which no pod can get the address.
    pub quarantine_seconds: Option<u64>,
    /// The cohort, which is the upper part of the address's suffix.
    pub cohort: u32,
    /// The number of the pod in its cohort.
    pub number: u32,
    /// Differences between lease, kernel and data path.
    pub faults: Vec<String>,
}

/// All addresses with a lease, a quarantine or an object in the kernel, in order.
pub fn rows(wiring: &Wiring) -> Vec<AddressRow> {
    wiring.all().iter().map(AddressRow::of).collect()
}

impl AddressRow {
    fn of(wired: &Wired) -> Self {
        Self {
            address: wired.address,
            address4: wired.address4,
            state: wired.state.to_owned(),
            holder: wired.holder_text(),
            age_seconds: wired.age.map(|age| age.as_secs()),
            quarantine_seconds: wired.quarantine.map(|left| left.as_secs()),
            cohort: wired.suffix.cohort(),
            number: wired.suffix.number(),
            faults: wired
                .faults
                .iter()
                .map(|fault| (*fault).to_owned())
                .collect(),
        }
    }
}

impl Row for AddressRow {
    const KIND: &'static str = "NodeAddressList";
    const COLUMNS: &'static [Column] = &[
        ("ADDRESS", false),
        ("STATE", false),
        ("HOLDER", false),
        ("AGE", false),
        ("QUARANTINE", false),
        ("IPV4", true),
        ("COHORT", true),
        ("NUMBER", true),
        ("FAULTS", false),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.address.to_string(),
            self.state.clone(),
            self.holder.clone(),
            self.age_seconds.map(age).unwrap_or_default(),
            self.quarantine_seconds.map(age).unwrap_or_default(),
            self.address4
                .map(|address| address.to_string())
                .unwrap_or_default(),
            self.cohort.to_string(),
            self.number.to_string(),
            self.faults.join("; "),
        ]
    }

    fn name(&self) -> String {
        format!("address/{}", self.address)
    }
}
