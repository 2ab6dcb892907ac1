//! The role of an address on this node.

use std::net::IpAddr;
use std::time::Duration;

use dormouse_agent_datapath::{Pinned, octets};
use dormouse_agent_pod::names::mac_text;
use dormouse_ebpf::config::{Net, Range};
use dormouse_ebpf::decide::{Tables as _, is_node_address};
use dormouse_ebpf::maps::{FRONTEND_CLUSTER_IP, FrontendKey};
use dormouse_ebpf::service::Route;
use serde_json::{Value, json};

use super::names::{Names, text};
use super::output::age;
use super::wiring::Wired;
use super::{API_VERSION, InspectError};

/// The facts about an address, each a topic and a text.
#[derive(Debug)]
pub struct Found {
    /// The address, IPv4 or IPv6.
    pub address: IpAddr,
    /// Topics and texts, in the order in which they are printed.
    pub facts: Vec<(&'static str, String)>,
}

/// Looks an address up in the node's maps.
pub fn find(pinned: &Pinned, names: &Names, address: IpAddr) -> Result<Found, InspectError> {
    let mut facts = Vec::new();
    let key = octets(address);
    let config = pinned.facts();
    if let Some(pod) = pinned.pod(address) {
        let mac = pod.mac.map(|byte| format!("{byte:02x}")).join(":");
        let seen = if pod.seen == 1 {
            ""
        } else {
            ", its outgoing packets do not pass the data path"
        };
        let text = format!("pod on interface {}, {mac}{seen}", pod.ifindex);
        facts.push(("data path", text));
    }
    if is_node_address(pinned, config, &key) {
        facts.push(("node", "a local address of this node".to_owned()));
    }
    if let Some(vip) = config.vip(&key) {
        let (route, set) = pinned.slot(vip);
        let state = if route.present {
            format!(
                "{}, {} backends, share {}/255",
                mode(&route),
                set.count,
                route.share()
            )
        } else {
            "not followed by this node".to_owned()
        };
        facts.push(("app", format!("VIP with index {vip}: {state}")));
    }
    facts.extend(served(pinned, names, address)?);
    facts.extend(ranges(pinned, &key));
    Ok(Found { address, facts })
}

/// The facts about a pod's address: lease, link, neighbour entries.
pub fn wired(wired: &Wired) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut fact = |topic, text: Option<String>| facts.extend(text.map(|text| (topic, text)));
    let age_text = wired
        .age
        .map(|lasted| age(lasted.as_secs()))
        .unwrap_or_default();
    let holder = wired.holder.as_ref();
    fact(
        "pod",
        holder.map(|holder| format!("{holder}, {} for {age_text}", wired.state)),
    );
    fact(
        "pod",
        holder.is_none().then(|| format!("none: {}", wired.state)),
    );
    let (cohort, number) = (wired.suffix.cohort(), wired.suffix.number());
    fact("number", Some(format!("{number} of cohort {cohort}")));
    let quarantine =
        |left: Duration| format!("{} left before another pod can get it", age(left.as_secs()));
    let ipv4 = wired.address4.map(|address| address.to_string());
    fact("IPv4", ipv4);
    fact("quarantine", wired.quarantine.map(quarantine));
    let port = wired
        .bridge
        .as_ref()
        .map_or_else(String::new, |bridge| format!(", port of {bridge}"));
    let link = wired.link.as_ref();
    fact(
        "link",
        link.map(|link| format!("{} (number {}){port}", link.name, link.index)),
    );
    fact("netns", wired.netns.clone());
    let neighbour = wired.neighbour.as_ref().map(|(entry, on)| {
        let mac = entry.mac.map(mac_text).unwrap_or_default();
        format!("{mac} on {on}, permanent")
    });
    fact("neighbour", neighbour);
    fact(
        "proxy",
        wired
            .proxied
            .as_ref()
            .map(|on| format!("NDP proxy entry on {on}")),
    );
    for fault in &wired.faults {
        fact("fault", Some((*fault).to_owned()));
    }
    facts
}

/// The Services with a frontend at the address.
fn served(
    pinned: &Pinned,
    names: &Names,
    address: IpAddr,
) -> Result<Vec<(&'static str, String)>, InspectError> {
    let key = octets(address);
    let own = pinned.facts().cluster_ip(&key);
    let own = own.filter(|slot| pinned.slot(*slot).0.present);
    let frontends = pinned.frontends()?;
    let mut slots: Vec<u32> = frontends
        .iter()
        .filter(|(_, frontend)| frontend.address == address)
        .map(|(slot, _)| *slot)
        .collect();
    let has_port = own.filter(|slot| pinned.slot(*slot).0.port != 0);
    slots.extend(has_port);
    slots.sort_unstable();
    slots.dedup();
    let inside = |slot: u32| {
        let inside = slots.iter().filter_map(|slot| pinned.slot_options(*slot));
        inside
            .into_iter()
            .any(|options| options.internal_slot == slot)
    };
    let facts = slots.iter().copied().map(|slot| {
        let (route, set) = pinned.slot(slot);
        let frontend = frontends
            .get(&slot)
            .copied()
            .or_else(|| pinned.own_frontend(slot));
        let frontend = frontend.map_or_else(String::new, |frontend| text(&frontend));
        let who = names.of_slot(pinned, slot).unwrap_or_default();
        let who = if who == frontend {
            String::new()
        } else {
            format!(" of {who}")
        };
        let to = if inside(slot) {
            ", for pods and the node"
        } else {
            ""
        };
        let text = format!(
            "{frontend}{who}{to}: {}, {} backends, slot {slot}",
            mode(&route),
            set.count
        );
        ("service", text)
    });
    let mut facts: Vec<_> = facts.collect();
    let listed = FrontendKey {
        address: key,
        port: 0,
        protocol: 0,
        kind: FRONTEND_CLUSTER_IP,
    };
    if own.is_some() || pinned.frontend(&listed).is_some() {
        facts.insert(0, ("cluster IP", "of a Service on this node".to_owned()));
    }
    Ok(facts)
}

/// The configured ranges that contain the address.
fn ranges(pinned: &Pinned, key: &[u8; 16]) -> Vec<(&'static str, String)> {
    let config = pinned.facts();
    let mut found = Vec::new();
    let within = |range: &Range| range.index_of(key, u32::MAX).is_some();
    for range in &config.ranges[..config.ranges_len.min(4) as usize] {
        if within(range) {
            let length = 96 + range.mask.leading_ones();
            found.push(("in", format!("VIP range {}", prefix(range.prefix, length))));
        }
    }
    let nets = config
        .service_ranges
        .iter()
        .map(|net| ("service range", net));
    let nets = nets.chain(config.pods.iter().map(|net| ("pod range", net)));
    for (what, net) in nets.filter(|(_, net)| net.contains(key)) {
        found.push(("in", format!("{what} {}", prefix(net.prefix, length(net)))));
    }
    if config.is_local(key) {
        found.push((
            "in",
            format!("node prefix {}", prefix(config.node_prefix, 96)),
        ));
    }
    found
}

fn mode(route: &Route) -> String {
    format!("{:?}", route.mode).to_lowercase()
}

fn length(net: &Net) -> u32 {
    u128::from_be_bytes(net.mask).leading_ones()
}

fn prefix(address: [u8; 16], length: u32) -> String {
    let address = IpAddr::from(address).to_canonical();
    let length = if address.is_ipv4() {
        length.saturating_sub(96)
    } else {
        length
    };
    format!("{address}/{length}")
}

impl Found {
    /// The facts as text, one per line.
    pub fn screen(&self) -> String {
        let mut lines = vec![self.address.to_string()];
        if self.facts.is_empty() {
            let nothing = "unknown on this node: packets to it follow the kernel's routes";
            lines.push(nothing.to_owned());
        }
        let facts = self.facts.iter();
        lines.extend(facts.map(|(topic, text)| format!("{topic:<10} {text}")));
        lines.join("\n") + "\n"
    }

    /// The facts as a JSON document.
    pub fn value(&self) -> Value {
        let fact = |(topic, text): &(&str, String)| json!({"topic": topic, "text": text});
        let facts: Vec<Value> = self.facts.iter().map(fact).collect();
        json!({
            "apiVersion": API_VERSION,
            "kind": "AddressExplanation",
            "address": self.address,
            "facts": facts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_prefix_is_written_as_ipv4() {
        let v4 = octets("10.96.0.0".parse().unwrap());
        assert_eq!(prefix(v4, 108), "10.96.0.0/12");
        let v6 = octets("fd00:20::".parse().unwrap());
        assert_eq!(prefix(v6, 112), "fd00:20::/112");
    }
}
