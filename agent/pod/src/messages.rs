//! The netlink messages that wire and unwire a pod. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use dormouse_agent_ipam::{LeaseKey, Suffix};
use dormouse_cni::message::Bandwidth;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridgePort, InfoData, InfoKind, InfoPortData,
    InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;

use super::names;
use dormouse_agent_netlink::Request;

mod inside;
mod limit;
mod reach;

pub(crate) use inside::pod_side;
pub(crate) use limit::allowed;
pub(crate) use reach::{reach, unreach};

/// The interface group of the pods' links.
pub const POD_GROUP: u32 = 0x646d_0001;
/// The group of links that are about to be removed together.
pub(crate) const DOOMED_GROUP: u32 = 0x646d_0002;

/// Queues of each end, one way. The kernel makes as many as there are CPUs, and registers each; a link that passes packets
/// on at once, as these do, uses none.
const QUEUES: u32 = 1;

/// A pod's wiring as it shall be.
#[derive(Clone, Debug)]
pub(crate) struct Wiring<'a> {
    pub(crate) key: &'a LeaseKey,
    pub(crate) suffix: Suffix,
    pub(crate) address: Ipv6Addr,
    pub(crate) address4: Option<Ipv4Addr>,
    /// Link-layer address of the pod's end.
    pub(crate) mac: [u8; 6],
    /// Index of either end, each in its namespace.
    pub(crate) ifindex: u32,
    /// The bridge that it is a port of.
    pub(crate) bridge: u32,
    /// The uplink that shall answer for the pod by the kernel's own neighbour proxy.
    pub(crate) proxy_on: Option<u32>,
    /// Largest packet, in bytes.
    pub(crate) mtu: u32,
    /// How much the pod may send and receive.
    pub(crate) limits: Option<Bandwidth>,
}

impl Wiring<'_> {
    /// The pod's addresses of both families.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        both(self.address, self.address4)
    }
}

/// Addresses of one pod.
pub(crate) fn both(address: Ipv6Addr, address4: Option<Ipv4Addr>) -> impl Iterator<Item = IpAddr> {
    [IpAddr::V6(address)]
        .into_iter()
        .chain(address4.map(IpAddr::V4))
}

fn tolerate(what: &'static str, message: RouteNetlinkMessage, codes: &'static [i32]) -> Request {
    Request {
        what,
        message,
        flags: 0,
        tolerated: codes,
    }
}

/// What [`host_side`] does first; the other requests depend on it.
pub(crate) const CREATE: &str = "create the pod's veth";

/// The host's namespace: the veth with its peer already inside the pod, isolated on the bridge, with its addresses
/// fixed, so that nothing is learned and nothing is flooded.
pub(crate) fn host_side(wiring: &Wiring<'_>, netns: RawFd) -> Vec<Request> {
    let mut requests = vec![
        Request::new(
            CREATE,
            RouteNetlinkMessage::NewLink(veth(wiring, netns)),
            NLM_F_CREATE | NLM_F_EXCL,
        ),
        Request::new(
            "set the pod's bridge port",
            RouteNetlinkMessage::NewLink(port(wiring)),
            0,
        ),
        Request::new(
            "fix the pod's forwarding entry",
            RouteNetlinkMessage::NewNeighbour(forwarding_entry(wiring)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
    ];
    let reached = wiring.addresses();
    requests.extend(reached.flat_map(|address| reach(address, wiring.mac, wiring.bridge)));
    if let Some(uplink) = wiring.proxy_on {
        requests.push(Request::new(
            "answer for the pod on the uplink",
            RouteNetlinkMessage::NewNeighbour(reach::proxy(wiring.address, uplink)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ));
    }
    requests
}

/// When both ends are there: the limits at the host's end, and a look that makes the kernel take notice that the link is up
/// before anyone sends. Since Linux 6.8 a look at the link runs the pending carrier work, which otherwise runs a moment later.
pub(crate) fn settle(wiring: &Wiring<'_>, limiter: Option<BorrowedFd<'_>>) -> Vec<Request> {
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    let look = Request::new(
        "look at the pod's link",
        RouteNetlinkMessage::GetLink(link),
        0,
    );
    let received = wiring.limits.and_then(|limits| limits.ingress);
    let limit = received.map(|rate| {
        let what = "limit what the pod receives";
        limit::limit(what, wiring.ifindex, wiring.mtu, rate)
    });
    let enforced = limiter.map(|limiter| limit::enforce(wiring.ifindex, limiter));
    let limits = limit.into_iter().chain(enforced.into_iter().flatten());
    limits.chain([look]).collect()
}

/// Puts a link among those that are about to be removed; one that is gone is no error.
pub(crate) fn doom(name: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Group(DOOMED_GROUP),
    ];
    tolerate(
        "mark the pod's veth for removal",
        RouteNetlinkMessage::SetLink(link),
        &[libc::ENODEV],
    )
}

/// Removes all that are marked; none is no error.
pub(crate) fn remove_doomed() -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::Group(DOOMED_GROUP)];
    tolerate(
        "remove the pod's veth",
        RouteNetlinkMessage::DelLink(link),
        &[libc::ENODEV],
    )
}

/// Sets the largest packet of a link of this namespace, in bytes.
pub(crate) fn set_mtu(ifindex: u32, mtu: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.attributes = vec![LinkAttribute::Mtu(mtu)];
    let message = RouteNetlinkMessage::SetLink(link);
    tolerate("set the largest packet", message, &[libc::ENODEV])
}

fn veth(wiring: &Wiring<'_>, netns: RawFd) -> LinkMessage {
    let mut peer = LinkMessage::default();
    peer.header.index = wiring.ifindex;
    peer.attributes = vec![
        LinkAttribute::IfName(wiring.key.ifname.clone()),
        LinkAttribute::NetNsFd(netns),
        LinkAttribute::Address(wiring.mac.to_vec()),
        LinkAttribute::Mtu(wiring.mtu),
        LinkAttribute::NumTxQueues(QUEUES),
        LinkAttribute::NumRxQueues(QUEUES),
    ];
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes = vec![
        LinkAttribute::IfName(names::link_name(wiring.suffix)),
        LinkAttribute::Controller(wiring.bridge),
        LinkAttribute::Group(POD_GROUP),
        LinkAttribute::Address(names::host_mac(wiring.suffix).to_vec()),
        LinkAttribute::Mtu(wiring.mtu),
        LinkAttribute::NumTxQueues(QUEUES),
        LinkAttribute::NumRxQueues(QUEUES),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    link
}

/// Alias, no addresses of its own, and the port's flags; none of these can ride in the create message. The link is named,
/// for its number may be someone else's where it could not be created.
fn port(wiring: &Wiring<'_>) -> LinkMessage {
    let flags = vec![
        InfoBridgePort::Learning(false),
        InfoBridgePort::UnicastFlood(false),
        InfoBridgePort::MulticastFlood(false),
        InfoBridgePort::BroadcastFlood(false),
        InfoBridgePort::Isolated(true),
    ];
    let alias = names::Alias {
        key: wiring.key.clone(),
        suffix: wiring.suffix,
        mac: wiring.mac,
        address4: wiring.address4,
    };
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(names::link_name(wiring.suffix)),
        LinkAttribute::IfAlias(alias.to_string()),
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
    entry.attributes = vec![NeighbourAttribute::LinkLayerAddress(wiring.mac.to_vec())];
    entry
}
