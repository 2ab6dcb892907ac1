//! The messages that are sent inside the pod's namespace. Pure.

use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::limit::limit;
use super::reach::permanent;
use super::{Request, Wiring, no_generated_addresses, request};
use crate::pod::{GATEWAY, names};

const LOOPBACK_IFINDEX: u32 = 1;

/// The pod's namespace: loopback, its link with two addresses that are usable at once, its default route, and the limit
/// of what it sends.
pub(crate) fn pod_side(wiring: &Wiring<'_>, ifindex: u32) -> Vec<Request> {
    let mut quiet = LinkMessage::default();
    quiet.header.index = ifindex;
    quiet.attributes = vec![no_generated_addresses()];
    let new = NLM_F_CREATE | NLM_F_EXCL;
    let gateway = permanent(ifindex, GATEWAY, names::BRIDGE_MAC);
    let requests = vec![
        request(
            "set the pod's loopback up",
            RouteNetlinkMessage::SetLink(up(LOOPBACK_IFINDEX)),
            0,
        ),
        request(
            "quiet the pod's link",
            RouteNetlinkMessage::SetLink(quiet),
            0,
        ),
        request(
            "set the pod's link up",
            RouteNetlinkMessage::SetLink(up(ifindex)),
            0,
        ),
        request(
            "give the pod its link-local address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                names::link_local(wiring.suffix),
                64,
                AddressScope::Link,
            )),
            new,
        ),
        request(
            "give the pod its address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                wiring.address,
                128,
                AddressScope::Universe,
            )),
            new,
        ),
        request(
            "tell the pod its gateway's link-layer address",
            RouteNetlinkMessage::NewNeighbour(gateway),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        request(
            "give the pod its default route",
            RouteNetlinkMessage::NewRoute(default_route(ifindex)),
            NLM_F_CREATE,
        ),
    ];
    let sent = wiring.limits.and_then(|limits| limits.egress);
    let limit = sent.map(|rate| limit("limit what the pod sends", ifindex, wiring.mtu, rate));
    requests.into_iter().chain(limit).collect()
}

fn up(ifindex: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

fn pod_address(ifindex: u32, address: Ipv6Addr, length: u8, scope: AddressScope) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = length;
    message.header.scope = scope;
    message.header.index = ifindex;
    message.attributes = vec![
        AddressAttribute::Address(IpAddr::V6(address)),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

fn default_route(ifindex: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Gateway(RouteAddress::Inet6(GATEWAY)),
        RouteAttribute::Oif(ifindex),
    ];
    message
}
