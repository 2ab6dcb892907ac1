//! The messages that are sent inside the pod's namespace. Pure.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::limit::limit;
use super::reach::permanent;
use super::{Wiring, no_generated_addresses};
use crate::{GATEWAY, GATEWAY4, names};
use dormouse_agent_netlink::Request;

const LOOPBACK_IFINDEX: u32 = 1;

/// The pod's namespace: loopback, its link with two addresses that are usable at once, its default route, and the limit
/// of what it sends.
pub(crate) fn pod_side(wiring: &Wiring<'_>) -> Vec<Request> {
    let ifindex = wiring.ifindex;
    let mut quiet = LinkMessage::default();
    quiet.header.index = ifindex;
    quiet.attributes = vec![no_generated_addresses()];
    let new = NLM_F_CREATE | NLM_F_EXCL;
    let gateway = permanent(ifindex, GATEWAY.into(), names::BRIDGE_MAC);
    let requests = vec![
        Request::new(
            "set the pod's loopback up",
            RouteNetlinkMessage::SetLink(up(LOOPBACK_IFINDEX)),
            0,
        ),
        Request::new(
            "quiet the pod's link",
            RouteNetlinkMessage::SetLink(quiet),
            0,
        ),
        Request::new(
            "set the pod's link up",
            RouteNetlinkMessage::SetLink(up(ifindex)),
            0,
        ),
        Request::new(
            "give the pod its link-local address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                names::link_local(wiring.suffix).into(),
                64,
                AddressScope::Link,
            )),
            new,
        ),
        Request::new(
            "give the pod its address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                wiring.address.into(),
                128,
                AddressScope::Universe,
            )),
            new,
        ),
        Request::new(
            "tell the pod its gateway's link-layer address",
            RouteNetlinkMessage::NewNeighbour(gateway),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "give the pod its default route",
            RouteNetlinkMessage::NewRoute(default_route(ifindex, GATEWAY.into())),
            NLM_F_CREATE,
        ),
    ];
    let sent = wiring.limits.and_then(|limits| limits.egress);
    let limit = sent.map(|rate| limit("limit what the pod sends", ifindex, wiring.mtu, rate));
    let ipv4 = wiring.address4.map(|address| ipv4(ifindex, address));
    let ipv4 = ipv4.into_iter().flatten();
    requests.into_iter().chain(ipv4).chain(limit).collect()
}

/// The same for IPv4.
fn ipv4(ifindex: u32, address: Ipv4Addr) -> [Request; 3] {
    let gateway = permanent(ifindex, GATEWAY4.into(), names::BRIDGE_MAC);
    [
        Request::new(
            "give the pod its IPv4 address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                address.into(),
                32,
                AddressScope::Universe,
            )),
            NLM_F_CREATE | NLM_F_EXCL,
        ),
        Request::new(
            "tell the pod its IPv4 gateway's link-layer address",
            RouteNetlinkMessage::NewNeighbour(gateway),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "give the pod its IPv4 default route",
            RouteNetlinkMessage::NewRoute(default_route(ifindex, GATEWAY4.into())),
            NLM_F_CREATE,
        ),
    ]
}

fn up(ifindex: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

fn pod_address(ifindex: u32, address: IpAddr, length: u8, scope: AddressScope) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = address.into();
    message.header.prefix_len = length;
    message.header.scope = scope;
    message.header.index = ifindex;
    // What an IPv4 address is called in its peer's place; IPv6 has duplicate address detection to be spared.
    let other = match address {
        IpAddr::V4(_) => AddressAttribute::Local(address),
        IpAddr::V6(_) => AddressAttribute::Flags(AddressFlags::Nodad),
    };
    message.attributes = vec![AddressAttribute::Address(address), other];
    message
}

fn default_route(ifindex: u32, gateway: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = gateway.into();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    if gateway.is_ipv4() {
        // No route of the pod leads to the gateway.
        message.header.flags = RouteFlags::Onlink;
    }
    message.attributes = vec![
        RouteAttribute::Gateway(gateway.into()),
        RouteAttribute::Oif(ifindex),
    ];
    message
}
