//! The node's links, neighbour entries and routes in the kernel. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use dormouse_agent_inspect::kernel::{Kernel, Link, Neighbour, Route};
use dormouse_agent_inspect::wiring::Wiring;
use dormouse_agent_ipam::NodePrefix;
use dormouse_agent_pod::names::{BRIDGE_MAC, parse_alias, suffix_of_link};
use dormouse_agent_pod::unreachable_routes;
use dormouse_ebpf::config::Config;

use super::NodePaths;

/// Length of an acting prefix, in bits.
const ACTING_LENGTH: u8 = 96;

/// The objects to remove, in order, and the obstacles.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The objects.
    pub removals: Vec<Removal>,
    /// Running pods, which forbid the removal without `force`.
    pub live: Vec<String>,
    /// Containers of running pods that another program runs: `force` removes their network only.
    pub left: Vec<String>,
}

/// An object to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A pod's link, or a bridge; its routes, neighbour entries and addresses are removed with it.
    Link {
        /// ifindex.
        index: u32,
        /// Interface name.
        name: String,
    },
    /// A proxy neighbour entry of a pod.
    Neighbour {
        /// The entry.
        entry: Box<Neighbour>,
        /// Name of its interface.
        on: String,
    },
    /// A route that is not removed with a link of Dormouse.
    Route {
        /// The route.
        route: Box<Route>,
        /// The route as text.
        text: String,
    },
    /// A standalone pod's network namespace.
    Namespace(PathBuf),
    /// A folder of pins, which hold programs and maps.
    Pins(PathBuf),
    /// A file, or a socket.
    File(PathBuf),
    /// The cgroup of a standalone pod or of the writer of the pods' logs, with its processes.
    Cgroup(PathBuf),
    /// A folder or cgroup; removed only if it is empty.
    Folder(PathBuf),
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { name, .. } => write!(f, "link {name}"),
            Self::Neighbour { entry, on } => write!(f, "proxy {} on {on}", entry.address),
            Self::Route { text, .. } => write!(f, "route {text}"),
            Self::Namespace(path) => write!(f, "namespace {}", path.display()),
            Self::Pins(path) => write!(f, "pins {}", path.display()),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Folder(path) => write!(f, "folder {}", path.display()),
        }
    }
}

/// The objects in the kernel. `facts`: the data path's configuration, if its maps exist; `uplink`: from the last agent.
pub(super) fn of_kernel(
    paths: &NodePaths,
    wiring: &Wiring,
    facts: Option<&Config>,
    uplink: Option<&str>,
) -> Plan {
    let kernel = wiring.kernel();
    let pods = wiring.all();
    let bridges: Vec<&Link> = kernel
        .links
        .iter()
        .filter(|link| is_bridge(link, &paths.bridge))
        .collect();
    let ports = kernel.links.iter().filter(|link| is_pod(link, &bridges));
    let link = |link: &Link| Removal::Link {
        index: link.index,
        name: link.name.clone(),
    };
    let mut removals: Vec<Removal> = ports.map(link).collect();
    removals.extend(bridges.iter().map(|bridge| link(bridge)));
    let proxies = kernel.neighbours.iter().filter(|entry| entry.proxy);
    let is_uplink = |index| match (facts, uplink) {
        (Some(facts), _) => facts.uplink == index,
        (None, Some(uplink)) => kernel.name(index) == uplink,
        (None, None) => false,
    };
    let ours = proxies.filter(|entry| stands_for_pod(entry, wiring) && is_uplink(entry.ifindex));
    removals.extend(ours.map(|entry| Removal::Neighbour {
        entry: Box::new(entry.clone()),
        on: kernel.name(entry.ifindex),
    }));
    let routes = kernel.routes.iter().filter(|route| {
        unreachable_routes::is_unreachable_route(&route.message)
            || facts.is_some_and(|facts| leads_to_activator(route, facts))
    });
    removals.extend(routes.map(|route| Removal::Route {
        route: Box::new(route.clone()),
        text: text(route, kernel),
    }));
    let live = pods
        .into_iter()
        .filter(|pod| pod.state == "live" && pod.link.is_some());
    Plan {
        removals,
        live: live.map(|pod| pod.holder_text()).collect(),
        left: Vec::new(),
    }
}

/// Whether the link has the name of a Dormouse bridge, and the link-layer address that all of them share.
fn is_bridge(link: &Link, base: &str) -> bool {
    link.is_bridge && link.name.starts_with(base) && link.mac == BRIDGE_MAC
}

/// Whether the link has a pod's name, and either an alias with the pod's key or a Dormouse bridge.
fn is_pod(link: &Link, bridges: &[&Link]) -> bool {
    let behind = link
        .controller
        .is_some_and(|index| bridges.iter().any(|bridge| bridge.index == index));
    suffix_of_link(&link.name).is_some() && (behind || parse_alias(&link.alias).is_some())
}

/// Whether the proxy entry is for the node's prefix: such entries on the uplink are the agent's, also those of pods without
/// any other trace.
fn stands_for_pod(entry: &Neighbour, wiring: &Wiring) -> bool {
    let suffix = |prefix: NodePrefix| match entry.address {
        IpAddr::V6(address) => prefix.suffix(address),
        IpAddr::V4(_) => None,
    };
    wiring.prefix().and_then(suffix).is_some()
}

/// Whether the route goes to an activator, as in control's settings.
fn leads_to_activator(route: &Route, facts: &Config) -> bool {
    let known = facts.activators.iter().take(facts.activators_len as usize);
    let is = |address: [u8; 16]| IpAddr::V6(Ipv6Addr::from(address));
    route.length == ACTING_LENGTH
        && route.ifindex == Some(facts.uplink)
        && known
            .into_iter()
            .any(|known| route.prefix == is(known.prefix) && route.via == Some(is(known.via)))
}

fn text(route: &Route, kernel: &Kernel) -> String {
    let via = route
        .via
        .map_or_else(String::new, |via| format!(" via {via}"));
    let on = route
        .ifindex
        .map_or_else(String::new, |index| format!(" on {}", kernel.name(index)));
    format!("{}/{}{via}{on}", route.prefix, route.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str) -> Link {
        Link {
            index: 7,
            name: name.to_owned(),
            ..Link::default()
        }
    }

    #[test]
    fn a_bridge_is_recognized_by_name_kind_and_link_layer_address() {
        let ours = |name: &str| Link {
            is_bridge: true,
            mac: BRIDGE_MAC.to_vec(),
            ..link(name)
        };
        assert!(is_bridge(&ours("dormouse0"), "dormouse0"));
        assert!(is_bridge(&ours("dormouse0-1"), "dormouse0"));
        assert!(!is_bridge(&ours("br0"), "dormouse0"));
        assert!(!is_bridge(
            &Link {
                mac: vec![2; 6],
                ..ours("dormouse0")
            },
            "dormouse0"
        ));
        assert!(!is_bridge(
            &Link {
                is_bridge: false,
                ..ours("dormouse0")
            },
            "dormouse0"
        ));
    }

    #[test]
    fn a_pods_link_is_recognized_by_name_and_by_alias_or_bridge() {
        let bridge = link("dormouse0");
        let aliased = Link {
            alias: "dormouse 00010002 pods/c1/eth0".into(),
            ..link("dm00010002")
        };
        let behind = Link {
            controller: Some(7),
            ..link("dm00010002")
        };
        assert!(is_pod(&aliased, &[]));
        assert!(is_pod(&behind, &[&bridge]));
        assert!(
            !is_pod(&link("dm00010002"), &[&bridge]),
            "only the name matches"
        );
        assert!(
            !is_pod(
                &Link {
                    controller: Some(8),
                    ..behind
                },
                &[&bridge]
            ),
            "on another bridge"
        );
        assert!(!is_pod(
            &Link {
                alias: aliased.alias,
                ..link("veth0")
            },
            &[]
        ));
    }

    #[test]
    fn a_route_is_recognized_by_prefix_and_next_hop() {
        let (prefix, via): (Ipv6Addr, Ipv6Addr) = (
            "2001:db8:a1::".parse().unwrap(),
            "2001:db8::c".parse().unwrap(),
        );
        let mut facts = Config {
            uplink: 3,
            activators_len: 1,
            ..Config::default()
        };
        facts.activators[0].prefix = prefix.octets();
        facts.activators[0].via = via.octets();
        let message = netlink_packet_route::route::RouteMessage::default();
        let route = Route {
            prefix: prefix.into(),
            length: 96,
            via: Some(via.into()),
            ifindex: Some(3),
            message,
        };
        assert!(leads_to_activator(&route, &facts));
        assert!(!leads_to_activator(
            &Route {
                length: 64,
                ..route.clone()
            },
            &facts
        ));
        assert!(!leads_to_activator(
            &Route {
                ifindex: Some(4),
                ..route.clone()
            },
            &facts
        ));
        assert!(!leads_to_activator(
            &Route {
                via: Some(prefix.into()),
                ..route.clone()
            },
            &facts
        ));
        facts.activators_len = 0;
        assert!(!leads_to_activator(&route, &facts));
    }
}
