//! How the node reaches a pod: a route to its bridge, its link-layer address, and an answer for it on the uplink. Pure.

use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;

use super::tolerate;
use dormouse_agent_netlink::Request;

/// How the node reaches a pod: by its bridge, without asking for its link-layer address.
pub(crate) fn reach(address: IpAddr, mac: [u8; 6], bridge: u32) -> [Request; 2] {
    let neighbor = permanent(bridge, address, mac);
    [
        Request::new(
            "fix the pod's neighbour entry",
            RouteNetlinkMessage::NewNeighbour(neighbor),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "route the pod's address to its bridge",
            RouteNetlinkMessage::NewRoute(route(address, bridge)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
    ]
}

/// Removes what [`host_side`] made, but for the link; what is gone already is no error.
pub(crate) fn unreach(address: IpAddr, bridge: u32, proxy_on: Option<u32>) -> Vec<Request> {
    let mut entry = NeighbourMessage::default();
    entry.header.family = address.into();
    entry.header.ifindex = bridge;
    entry.attributes = vec![NeighbourAttribute::Destination(address.into())];
    let mut requests = vec![
        tolerate(
            "remove the pod's route",
            RouteNetlinkMessage::DelRoute(route(address, bridge)),
            &[libc::ESRCH, libc::ENODEV],
        ),
        tolerate(
            "remove the pod's neighbour entry",
            RouteNetlinkMessage::DelNeighbour(entry),
            &[libc::ENOENT, libc::ENODEV],
        ),
    ];
    if let (IpAddr::V6(address), Some(uplink)) = (address, proxy_on) {
        let entry = RouteNetlinkMessage::DelNeighbour(proxy(address, uplink));
        requests.push(tolerate(
            "stop to answer on the uplink",
            entry,
            &[libc::ENOENT, libc::ENODEV],
        ));
    }
    requests
}

fn route(address: IpAddr, bridge: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address.into();
    message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    // Also of IPv4: with a link's scope the kernel would send from the gateway's address, not from the node's own.
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::from(address)),
        RouteAttribute::Oif(bridge),
    ];
    message
}

/// A neighbour whose link-layer address nobody asks for.
pub(super) fn permanent(ifindex: u32, address: IpAddr, mac: [u8; 6]) -> NeighbourMessage {
    let mut entry = NeighbourMessage::default();
    entry.header.family = address.into();
    entry.header.ifindex = ifindex;
    entry.header.state = NeighbourState::Permanent;
    entry.attributes = vec![
        NeighbourAttribute::Destination(address.into()),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    entry
}

pub(super) fn proxy(address: Ipv6Addr, uplink: u32) -> NeighbourMessage {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Inet6;
    entry.header.ifindex = uplink;
    entry.header.state = NeighbourState::Permanent;
    entry.header.flags = NeighbourFlags::Proxy;
    entry.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet6(
        address,
    ))];
    entry
}
