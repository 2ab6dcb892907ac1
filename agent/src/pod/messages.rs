//! The netlink messages that wire and unwire a pod. Pure.

use std::net::Ipv6Addr;
use std::os::fd::RawFd;

use dormouse_agent_ipam::{LeaseKey, Suffix};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridgePort, InfoData, InfoKind, InfoPortData,
    InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;

use super::names;
use super::netlink::Request;

mod inside;

pub(crate) use inside::pod_side;

/// A pod's wiring as it shall be.
#[derive(Clone, Debug)]
pub(crate) struct Wiring<'a> {
    pub(crate) key: &'a LeaseKey,
    pub(crate) suffix: Suffix,
    pub(crate) address: Ipv6Addr,
    /// Index of the host's end.
    pub(crate) ifindex: u32,
    pub(crate) bridge: u32,
    /// The uplink that shall answer for the pod by the kernel's own neighbour proxy.
    pub(crate) proxy_on: Option<u32>,
    /// Largest packet, in bytes.
    pub(crate) mtu: u32,
}

fn request(what: &'static str, message: RouteNetlinkMessage, flags: u16) -> Request {
    Request {
        what,
        message,
        flags,
        tolerated: None,
    }
}

fn tolerate(what: &'static str, message: RouteNetlinkMessage, code: i32) -> Request {
    Request {
        what,
        message,
        flags: 0,
        tolerated: Some(code),
    }
}

/// What [`host_side`] does first; the other requests depend on it.
pub(crate) const CREATE: &str = "create the pod's veth";

/// The host's namespace: the veth with its peer already inside the pod, isolated on the bridge, with its addresses
/// fixed, so that nothing is learned and nothing is flooded.
pub(crate) fn host_side(wiring: &Wiring<'_>, netns: RawFd) -> Vec<Request> {
    let mut requests = vec![
        request(
            CREATE,
            RouteNetlinkMessage::NewLink(veth(wiring, netns)),
            NLM_F_CREATE | NLM_F_EXCL,
        ),
        request(
            "set the pod's bridge port",
            RouteNetlinkMessage::NewLink(port(wiring)),
            0,
        ),
        request(
            "fix the pod's forwarding entry",
            RouteNetlinkMessage::NewNeighbour(forwarding_entry(wiring)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        request(
            "fix the pod's neighbour entry",
            RouteNetlinkMessage::NewNeighbour(neighbor(wiring)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
    ];
    if let Some(uplink) = wiring.proxy_on {
        requests.push(request(
            "answer for the pod on the uplink",
            RouteNetlinkMessage::NewNeighbour(proxy(wiring.address, uplink)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ));
    }
    requests
}

/// Makes the kernel take notice that the link is up before anyone sends: since Linux 6.8 a look at the link runs the
/// pending carrier work, which otherwise runs a moment later.
pub(crate) fn settle(wiring: &Wiring<'_>) -> Vec<Request> {
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    vec![request(
        "look at the pod's link",
        RouteNetlinkMessage::GetLink(link),
        0,
    )]
}

/// Removes what [`host_side`] made; what is gone already is no error.
pub(crate) fn unwire(
    suffix: Suffix,
    address: Ipv6Addr,
    bridge: u32,
    proxy_on: Option<u32>,
) -> Vec<Request> {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Inet6;
    entry.header.ifindex = bridge;
    entry.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet6(
        address,
    ))];
    let mut requests = vec![
        remove_link(&names::link_name(suffix)),
        tolerate(
            "remove the pod's neighbour entry",
            RouteNetlinkMessage::DelNeighbour(entry),
            libc::ENOENT,
        ),
    ];
    if let Some(uplink) = proxy_on {
        let entry = RouteNetlinkMessage::DelNeighbour(proxy(address, uplink));
        requests.push(tolerate(
            "stop to answer on the uplink",
            entry,
            libc::ENOENT,
        ));
    }
    requests
}

/// Removes a link by its name; one that is gone is no error.
pub(crate) fn remove_link(name: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    tolerate(
        "remove the pod's veth",
        RouteNetlinkMessage::DelLink(link),
        libc::ENODEV,
    )
}

fn veth(wiring: &Wiring<'_>, netns: RawFd) -> LinkMessage {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(wiring.key.ifname.clone()),
        LinkAttribute::NetNsFd(netns),
        LinkAttribute::Address(names::pod_mac(wiring.suffix).to_vec()),
        LinkAttribute::Mtu(wiring.mtu),
    ];
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes = vec![
        LinkAttribute::IfName(names::link_name(wiring.suffix)),
        LinkAttribute::Controller(wiring.bridge),
        LinkAttribute::Address(names::host_mac(wiring.suffix).to_vec()),
        LinkAttribute::Mtu(wiring.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    link
}

/// Alias, no addresses of its own, and the port's flags; none of these can ride in the create message.
fn port(wiring: &Wiring<'_>) -> LinkMessage {
    let flags = vec![
        InfoBridgePort::Learning(false),
        InfoBridgePort::UnicastFlood(false),
        InfoBridgePort::MulticastFlood(false),
        InfoBridgePort::BroadcastFlood(false),
        InfoBridgePort::Isolated(true),
    ];
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    link.attributes = vec![
        LinkAttribute::IfAlias(names::alias(wiring.key, wiring.suffix)),
        no_generated_addresses(),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(flags)),
        ]),
    ];
    link
}

/// The kernel gives the link no address by itself, so nothing waits for duplicate address detection.
pub(crate) fn no_generated_addresses() -> LinkAttribute {
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(
        In6AddrGenMode::None,
    )])])
}

fn forwarding_entry(wiring: &Wiring<'_>) -> NeighbourMessage {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Bridge;
    entry.header.ifindex = wiring.ifindex;
    entry.header.state = NeighbourState::Noarp;
    entry.header.flags = NeighbourFlags::Controller;
    entry.attributes = vec![NeighbourAttribute::LinkLayerAddress(
        names::pod_mac(wiring.suffix).to_vec(),
    )];
    entry
}

fn neighbor(wiring: &Wiring<'_>) -> NeighbourMessage {
    permanent(wiring.bridge, wiring.address, names::pod_mac(wiring.suffix))
}

fn permanent(ifindex: u32, address: Ipv6Addr, mac: [u8; 6]) -> NeighbourMessage {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Inet6;
    entry.header.ifindex = ifindex;
    entry.header.state = NeighbourState::Permanent;
    entry.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    entry
}

fn proxy(address: Ipv6Addr, uplink: u32) -> NeighbourMessage {
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
