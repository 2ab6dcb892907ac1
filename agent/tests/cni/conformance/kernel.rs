//! The kernel's state of a namespace, from `ip`.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::conformance::check::{Outcome, holds};
use dormouse_rig::Netns;

/// Links, addresses, routes and fixed neighbours, one a line; what the kernel makes for itself is left out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct World(BTreeSet<String>);

impl World {
    pub(crate) fn of(netns: &Netns) -> Self {
        let mut lines = BTreeSet::new();
        for link in ask(netns, &["addr"]) {
            let name = text(&link, "ifname");
            lines.insert(format!(
                "link {name} {} {}",
                text(&link, "address"),
                text(&link, "master")
            ));
            for address in link["addr_info"].as_array().into_iter().flatten() {
                if address["scope"] != "link" {
                    let local = text(address, "local");
                    lines.insert(format!("addr {name} {local}/{}", address["prefixlen"]));
                }
            }
        }
        for family in ["-4", "-6"] {
            for route in ask(netns, &[family, "route"]) {
                let (dst, dev) = (text(&route, "dst"), text(&route, "dev"));
                if !dst.starts_with("fe80") && !dst.starts_with("ff00") {
                    lines.insert(format!("route {dst} {} {dev}", text(&route, "gateway")));
                }
            }
        }
        for kind in [
            &["neigh", "show", "nud", "permanent"][..],
            &["neigh", "show", "proxy"],
        ] {
            for neighbour in ask(netns, kind) {
                let (dst, dev) = (text(&neighbour, "dst"), text(&neighbour, "dev"));
                lines.insert(format!("neigh {dst} {dev}"));
            }
        }
        Self(lines)
    }

    /// Adds lines about something else.
    pub(crate) fn with(mut self, more: impl IntoIterator<Item = String>) -> Self {
        self.0.extend(more);
        self
    }

    /// Its links.
    pub(crate) fn links(&self) -> Vec<&str> {
        let lines = self.0.iter().map(String::as_str);
        lines.filter(|line| line.starts_with("link ")).collect()
    }

    /// Is it as it was before?
    pub(crate) fn is_as(&self, before: &Self) -> Outcome {
        holds(self == before, || {
            let more: Vec<_> = self.0.difference(&before.0).collect();
            let less: Vec<_> = before.0.difference(&self.0).collect();
            format!("left behind: {more:?}; taken away: {less:?}")
        })
    }
}

/// A link of a namespace.
pub(crate) struct Link(Value);

impl Link {
    pub(crate) fn find(netns: &Netns, name: &str) -> Outcome<Self> {
        let found = ask(netns, &["addr"])
            .into_iter()
            .find(|link| link["ifname"] == name);
        holds(found.is_some(), || format!("there is no link `{name}`"))?;
        Ok(Self(found.unwrap_or_default()))
    }

    pub(crate) fn mac(&self) -> String {
        text(&self.0, "address")
    }

    pub(crate) fn master(&self) -> String {
        text(&self.0, "master")
    }

    pub(crate) fn is_up(&self) -> bool {
        let mut flags = self.0["flags"].as_array().into_iter().flatten();
        flags.any(|flag| flag == "UP")
    }

    /// Its addresses with their prefix lengths, without link-local ones.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let addresses = self.0["addr_info"].as_array().into_iter().flatten();
        addresses
            .filter(|address| address["scope"] != "link")
            .map(|address| format!("{}/{}", text(address, "local"), address["prefixlen"]))
            .collect()
    }
}

/// Where the namespace sends what has no other route: (gateway, link).
pub(crate) fn default_routes(netns: &Netns, family: &str) -> Vec<(String, String)> {
    let routes = ask(netns, &[family, "route", "show", "default"]);
    routes
        .iter()
        .map(|route| (text(route, "gateway"), text(route, "dev")))
        .collect()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn ask(netns: &Netns, arguments: &[&str]) -> Vec<Value> {
    let output = netns.inside(|| Command::new("ip").arg("-j").args(arguments).output());
    assert!(output.status.success(), "ip -j {arguments:?}");
    if output.stdout.trim_ascii().is_empty() {
        return Vec::new();
    }
    serde_json::from_slice(&output.stdout).unwrap()
}
