//! The messages inside the pod's network namespace. Pure.

use std::net::{IpAddr, Ipv4Addr};

use dormouse_agent_netlink::Request;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::host_route::permanent;
use super::limit::limit;
use super::{Wiring, no_generated_addresses};
use crate::{GATEWAY, GATEWAY4, names};

const LOOPBACK_IFINDEX: u32 = 1;

/// Loopback, the pod's interface with two addresses that are usable at once (no DAD), the default route, and the egress
/// limit.
pub(crate) fn pod_side(wiring: &Wiring<'_>) -> Vec<Request> {
    let ifindex = wiring.ifindex;
    let mut quiet = LinkMessage::default();
    quiet.header.index = ifindex;
    quiet.attributes = vec![no_generated_addresses()];
    let new = NLM_F_CREATE | NLM_F_EXCL;
    let gateway = permanent(ifindex, GATEWAY.into(), names::BRIDGE_MAC);
    let requests = vec![
        Request::new(
            "bring up the pod's loopback interface",
            RouteNetlinkMessage::SetLink(up(LOOPBACK_IFINDEX)),
            0,
        ),
        Request::new(
            "disable address generation on the pod's link",
            RouteNetlinkMessage::SetLink(quiet),
            0,
        ),
        Request::new(
            "bring up the pod's link",
            RouteNetlinkMessage::SetLink(up(ifindex)),
            0,
        ),
        Request::new(
            "add the pod's link-local address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                names::link_local(wiring.suffix).into(),
                64,
                AddressScope::Link,
            )),
            new,
        ),
        Request::new(
            "add the pod's address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                wiring.address.into(),
                128,
                AddressScope::Universe,
            )),
            new,
        ),
        Request::new(
            "add the pod's neighbour entry for the gateway",
            RouteNetlinkMessage::NewNeighbour(gateway),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "add the pod's default route",
            RouteNetlinkMessage::NewRoute(default_route(ifindex, GATEWAY.into())),
            NLM_F_CREATE,
        ),
    ];
    let sent = wiring.limits.and_then(|limits| limits.egress);
    let limit = sent.map(|rate| limit("limit the pod's egress", ifindex, wiring.mtu, rate));
    let ipv4 = wiring.address4.map(|address| ipv4(ifindex, address));
    let ipv4 = ipv4.into_iter().flatten();
    requests.into_iter().chain(ipv4).chain(limit).collect()
}

/// Address, neighbour entry and default route for IPv4.
fn ipv4(ifindex: u32, address: Ipv4Addr) -> [Request; 3] {
    let gateway = permanent(ifindex, GATEWAY4.into(), names::BRIDGE_MAC);
    [
        Request::new(
            "add the pod's IPv4 address",
            RouteNetlinkMessage::NewAddress(pod_address(
                ifindex,
                address.into(),
                32,
                AddressScope::Universe,
            )),
            NLM_F_CREATE | NLM_F_EXCL,
        ),
        Request::new(
            "add the pod's neighbour entry for the IPv4 gateway",
            RouteNetlinkMessage::NewNeighbour(gateway),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        Request::new(
            "add the pod's IPv4 default route",
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
    // IPv4 needs IFA_LOCAL; IPv6 needs IFA_F_NODAD, which skips duplicate address detection. IFA_F_NOPREFIXROUTE: without a
    // route to all of fe80::/64, packets to any address of it go to the gateway. The kernel would solicit each of them, and its
    // neighbour table has one size for all namespaces.
    let other = match address {
        IpAddr::V4(_) => AddressAttribute::Local(address),
        IpAddr::V6(_) => AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Noprefixroute),
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
        // RTNH_F_ONLINK: no route of the pod contains the gateway.
        message.header.flags = RouteFlags::Onlink;
    }
    message.attributes = vec![
        RouteAttribute::Gateway(gateway.into()),
        RouteAttribute::Oif(ifindex),
    ];
    message
}
