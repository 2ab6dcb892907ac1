//! The pod addresses of a node as a list: who holds each, since when, and what rests.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::output::{Column, Row, age};
use super::wiring::{Wired, Wiring};

/// An address that is held, rests, or is stray.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressRow {
    /// The address.
    pub address: Ipv6Addr,
    /// The IPv4 address that is held with it.
    pub address4: Option<Ipv4Addr>,
    /// `reserved`, `live`, `releasing`, `resting`, `stray`.
    pub state: String,
    /// Who holds it: network/container/interface.
    pub holder: String,
    /// How long it has been held.
    pub held_seconds: Option<u64>,
    /// How long it still rests.
    pub rests_seconds: Option<u64>,
    /// Which set of pods it is of.
    pub cohort: u32,
    /// Which one of them it is.
    pub number: u32,
    /// What is not as it should be.
    pub faults: Vec<String>,
}

/// The addresses, in order.
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
            held_seconds: wired.held.map(|held| held.as_secs()),
            rests_seconds: wired.rests.map(|rests| rests.as_secs()),
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
        ("HELD", false),
        ("RESTS", false),
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
            self.held_seconds.map(age).unwrap_or_default(),
            self.rests_seconds.map(age).unwrap_or_default(),
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
