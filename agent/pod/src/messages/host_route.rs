//! The messages that make a pod reachable from the node: host route and permanent neighbour entry. Pure.

use std::net::IpAddr;

use dormouse_agent_netlink::Request;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use nix::libc;

use super::tolerate;

/// The pod's host route to its bridge, and its permanent neighbour entry.
pub(crate) fn host_route(address: IpAddr, mac: [u8; 6], bridge: u32) -> [Request; 2] {
    let neighbor = permanent(bridge, address, mac);
    [
        Request::new(
            "add the pod's neighbour entry",
            RouteNetlinkMessage::NewNeighbour(neighbor),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "add the pod's host route",
            RouteNetlinkMessage::NewRoute(route(address, bridge)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
    ]
}

/// Deletes what [`host_side`] created except the link; missing objects are no error.
pub(crate) fn remove_host_route(address: IpAddr, bridge: u32) -> [Request; 2] {
    let mut entry = NeighbourMessage::default();
    entry.header.family = address.into();
    entry.header.ifindex = bridge;
    entry.attributes = vec![NeighbourAttribute::Destination(address.into())];
    [
        tolerate(
            "delete the pod's host route",
            RouteNetlinkMessage::DelRoute(route(address, bridge)),
            &[libc::ESRCH, libc::ENODEV],
        ),
        tolerate(
            "delete the pod's neighbour entry",
            RouteNetlinkMessage::DelNeighbour(entry),
            &[libc::ENOENT, libc::ENODEV],
        ),
    ]
}

fn route(address: IpAddr, bridge: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address.into();
    message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    // Global scope, also for IPv4: with link scope the kernel would choose the gateway's address as source.
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::from(address)),
        RouteAttribute::Oif(bridge),
    ];
    message
}

/// A permanent neighbour entry: it is never resolved.
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
