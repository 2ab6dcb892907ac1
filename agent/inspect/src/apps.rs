//! `get apps`: the apps of the fleet that a node follows, by VIP (the maps contain no names of apps).

use std::net::IpAddr;

use dormouse_agent_datapath::{Mode, Pinned};
use serde::Serialize;

use super::output::{Column, Row};

/// An app's entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRow {
    /// The VIP; none if the index is outside of the configured VIP ranges.
    pub vip: Option<IpAddr>,
    /// The index of the VIP in the `svc` map.
    pub index: u32,
    /// The port of the VIP; 0: any.
    pub port: u16,
    /// `serve`, `proxy`, or `asleep`.
    pub mode: &'static str,
    /// Share of new connections that go to an activator, of 255.
    pub share: u8,
    /// Number of backends.
    pub backends: u16,
    /// The entry is under the node lease: when it expires, new connections go to an activator.
    pub leased: bool,
    /// The lease has expired and the entry is used nevertheless: neither control nor an activator answers.
    pub stale: bool,
}

impl Row for AppRow {
    const KIND: &'static str = "NodeAppList";
    const COLUMNS: &'static [Column] = &[
        ("VIP", false),
        ("PORT", false),
        ("MODE", false),
        ("SHARE", false),
        ("BACKENDS", false),
        ("LEASED", false),
        ("INDEX", true),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.vip.map(|vip| vip.to_string()).unwrap_or_default(),
            if self.port == 0 {
                "any".to_owned()
            } else {
                self.port.to_string()
            },
            self.mode.to_owned(),
            format!("{}/255", self.share),
            self.backends.to_string(),
            match (self.leased, self.stale) {
                (true, true) => "stale",
                (true, false) => "yes",
                (false, _) => "no",
            }
            .to_owned(),
            self.index.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("app/{:#x}", self.index)
    }
}

/// The followed apps, by index.
pub fn rows(pinned: &Pinned) -> Vec<AppRow> {
    let stale = pinned.stale_for().is_some();
    let apps = pinned
        .followed()
        .filter(|(_, route, _)| !route.is_service());
    let row = apps.map(|(index, route, set)| AppRow {
        vip: pinned.own_frontend(index).map(|frontend| frontend.address),
        index,
        port: route.port,
        mode: match route.mode {
            Mode::Serve => "serve",
            _ if route.asleep => "asleep",
            _ => "proxy",
        },
        share: route.share(),
        backends: set.count,
        leased: route.leased,
        stale: route.leased && stale,
    });
    row.collect()
}
