//! The Services in the kernel's maps.

use std::collections::BTreeMap;
use std::net::IpAddr;

use dormouse_agent_datapath::Pinned;
use dormouse_rig::{Node, wait};

use crate::objects::{backend, vip};

/// The backends in the kernel's maps, by frontend.
pub(crate) type Programmed = BTreeMap<(IpAddr, u16, u8), Vec<(IpAddr, u16)>>;

/// The number of the protocol.
pub(crate) const TCP: u8 = 6;

/// Everything that the maps of this node hold about Services; nothing before an agent has created them.
pub(crate) fn programmed(node: &Node) -> Programmed {
    let Ok(pinned) = Pinned::open(node.bpffs()) else {
        return Programmed::new();
    };
    let places = pinned.frontends().unwrap();
    let entries = pinned.followed().filter_map(|(slot, _, set)| {
        let place = pinned.own_frontend(slot).or(places.get(&slot).copied())?;
        let mut backends: Vec<_> = pinned.backends(set).collect();
        backends.sort_unstable();
        Some(((place.address, place.port, place.protocol), backends))
    });
    entries.collect()
}

/// Waits until this frontend has backends with these last parts of the address.
pub(crate) fn wait_for(node: &Node, service: u16, hosts: &[u16]) {
    let mut wanted: Vec<_> = hosts.iter().map(|host| (backend(*host), 8_080)).collect();
    wanted.sort_unstable();
    let frontend = (vip(service), 80, TCP);
    wait(&format!("service {service} to have {hosts:?}"), || {
        programmed(node).get(&frontend) == Some(&wanted)
    });
}

/// Waits until this frontend has a backend.
pub(crate) fn wait_for_any(node: &Node, service: u16) {
    wait(&format!("service {service} to have a backend"), || {
        let found = programmed(node).remove(&(vip(service), 80, TCP));
        found.is_some_and(|backends| !backends.is_empty())
    });
}

/// Waits until there is no such frontend.
pub(crate) fn wait_for_absence(node: &Node, service: u16) {
    wait(&format!("service {service} to be gone"), || {
        !programmed(node).contains_key(&(vip(service), 80, TCP))
    });
}
