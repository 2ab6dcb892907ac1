//! The apps of the fleet that a node follows, by their VIPs: the maps hold no more of them.

use std::net::IpAddr;

use serde::Serialize;

use super::output::{Column, Row};
use dormouse_agent_datapath::{Mode, Pinned};

/// An app's VIP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRow {
    /// Its address.
    pub vip: Option<IpAddr>,
    /// Its index.
    pub index: u32,
    /// Its port; 0: any.
    pub port: u16,
    /// `serve`, `proxy`, or `asleep`.
    pub mode: &'static str,
    /// Of 255 new connections, how many go to an activator all the same.
    pub share: u8,
    /// How many backends it has.
    pub backends: u16,
    /// Past the end of the node lease an activator stands in.
    pub leased: bool,
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
            if self.leased { "yes" } else { "no" }.to_owned(),
            self.index.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("app/{:#x}", self.index)
    }
}

/// The apps that the node follows, by index.
pub fn rows(pinned: &Pinned) -> Vec<AppRow> {
    let apps = pinned.followed().filter(|(_, route, _)| !route.service);
    let row = apps.map(|(index, route, set)| AppRow {
        vip: pinned.own_place(index).map(|place| place.address),
        index,
        port: route.port,
        mode: match route.mode {
            Mode::Serve => "serve",
            _ if route.asleep => "asleep",
            _ => "proxy",
        },
        share: route.share,
        backends: set.count,
        leased: route.leased,
    });
    row.collect()
}
