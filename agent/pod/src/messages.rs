//! The netlink messages that add a pod to the network and remove it. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use dormouse_agent_ipam::{LeaseKey, Suffix};
use dormouse_agent_netlink::Request;
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

mod host_route;
mod inside;
mod limit;

pub(crate) use host_route::{host_route, remove_host_route};
pub(crate) use inside::pod_side;
pub(crate) use limit::allowed;

/// The interface group of the pods' links (IFLA_GROUP).
pub const POD_GROUP: u32 = 0x646d_0001;
/// The group of links that are about to be deleted together.
pub(crate) const DELETED_GROUP: u32 = 0x646d_0002;

/// Transmit and receive queues of each side of the veth pair. The default is one per CPU, each with a kernel object; a veth
/// without a qdisc uses none of them.
const QUEUES: u32 = 1;

/// The wiring of a pod that is to be created.
#[derive(Clone, Debug)]
pub(crate) struct Wiring<'a> {
    pub(crate) key: &'a LeaseKey,
    pub(crate) suffix: Suffix,
    pub(crate) address: Ipv6Addr,
    pub(crate) address4: Option<Ipv4Addr>,
    /// Link-layer address of the pod's side.
    pub(crate) mac: [u8; 6],
    /// Index of either end, each in its namespace.
    pub(crate) ifindex: u32,
    /// The bridge of the host side.
    pub(crate) bridge: u32,
    /// MTU in bytes.
    pub(crate) mtu: u32,
    /// The pod's rate limits.
    pub(crate) limits: Option<Bandwidth>,
}

impl Wiring<'_> {
    /// The pod's IPv6 address, and its IPv4 address if it has one.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        both(self.address, self.address4)
    }
}

/// One pod's addresses of both families.
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

/// The first request of [`host_side`], on which the others depend.
pub(crate) const CREATE: &str = "create the pod's veth";

/// The messages in the host's namespace: the veth pair with its peer already inside the pod, an isolated bridge port, and
/// permanent neighbour and forwarding entries, so that the bridge learns and floods nothing.
pub(crate) fn host_side(wiring: &Wiring<'_>, netns: RawFd) -> Vec<Request> {
    let mut requests = vec![
        Request::new(
            CREATE,
            RouteNetlinkMessage::NewLink(veth(wiring, netns)),
            NLM_F_CREATE | NLM_F_EXCL,
        ),
        Request::new(
            "configure the pod's bridge port",
            RouteNetlinkMessage::NewLink(port(wiring)),
            0,
        ),
        forwarding_entry(wiring.ifindex, wiring.mac),
    ];
    let reached = wiring.addresses();
    requests.extend(reached.flat_map(|address| host_route(address, wiring.mac, wiring.bridge)));
    requests
}

/// Makes a pod's link a port of a bridge, which it is no more.
pub(crate) fn rejoin(ifindex: u32, mac: [u8; 6], bridge: u32) -> [Request; 3] {
    let (mut joined, mut port) = (LinkMessage::default(), LinkMessage::default());
    joined.header.index = ifindex;
    joined.attributes = vec![LinkAttribute::Controller(bridge)];
    port.header.index = ifindex;
    port.attributes = vec![port_options()];
    let port = RouteNetlinkMessage::NewLink(port);
    [
        Request::new(
            "attach the pod's link to its bridge",
            RouteNetlinkMessage::SetLink(joined),
            0,
        ),
        Request::new("configure the pod's bridge port", port, 0),
        forwarding_entry(ifindex, mac),
    ]
}

/// Requests after both sides exist: the host side's limits, and a read of the link. Since Linux 6.8 that read runs pending
/// carrier work, which would otherwise run a moment later and delay the first packets.
pub(crate) fn settle(wiring: &Wiring<'_>, limiter: Option<BorrowedFd<'_>>) -> Vec<Request> {
    let mut link = LinkMessage::default();
    link.header.index = wiring.ifindex;
    let look = Request::new("read the pod's link", RouteNetlinkMessage::GetLink(link), 0);
    let received = wiring.limits.and_then(|limits| limits.ingress);
    let limit = received.map(|rate| {
        let what = "limit the pod's ingress";
        limit::limit(what, wiring.ifindex, wiring.mtu, rate)
    });
    let enforced = limiter.map(|limiter| limit::enforce(wiring.ifindex, limiter));
    let limits = limit.into_iter().chain(enforced.into_iter().flatten());
    limits.chain([look]).collect()
}

/// Moves a link out of its bridge, and to the group of links to delete; a missing link is no error. The kernel waits for all CPUs
/// when a port leaves its bridge: here each wait has the lock for itself, in the deletion of a group it would have it for all ports.
pub(crate) fn mark_for_deletion(name: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Controller(0),
        LinkAttribute::Group(DELETED_GROUP),
    ];
    tolerate(
        "mark the pod's veth for removal",
        RouteNetlinkMessage::SetLink(link),
        &[libc::ENODEV],
    )
}

/// Deletes the links of that group; an empty group is no error.
pub(crate) fn delete_marked() -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::Group(DELETED_GROUP)];
    tolerate(
        "remove the pod's veth",
        RouteNetlinkMessage::DelLink(link),
        &[libc::ENODEV],
    )
}

/// Sets the MTU of a link of this namespace, in bytes.
pub(crate) fn set_mtu(ifindex: u32, mtu: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = ifindex;
    link.attributes = vec![LinkAttribute::Mtu(mtu)];
    let message = RouteNetlinkMessage::SetLink(link);
    tolerate("set the MTU", message, &[libc::ENODEV])
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

/// Alias, address generation mode and bridge port flags, which the create message cannot contain. The link is identified by
/// name: if it could not be created, its ifindex may belong to another one.
fn port(wiring: &Wiring<'_>) -> LinkMessage {
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
        port_options(),
    ];
    link
}

/// An isolated port, of which the bridge learns nothing and to which it floods nothing.
fn port_options() -> LinkAttribute {
    let options = vec![
        InfoBridgePort::Learning(false),
        InfoBridgePort::UnicastFlood(false),
        InfoBridgePort::MulticastFlood(false),
        InfoBridgePort::BroadcastFlood(false),
        InfoBridgePort::Isolated(true),
    ];
    LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(options)),
    ])
}

/// No automatic link-local address, so nothing waits for duplicate address detection.
pub(crate) fn no_generated_addresses() -> LinkAttribute {
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(
        In6AddrGenMode::None,
    )])])
}

fn forwarding_entry(ifindex: u32, mac: [u8; 6]) -> Request {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Bridge;
    entry.header.ifindex = ifindex;
    entry.header.state = NeighbourState::Noarp;
    entry.header.flags = NeighbourFlags::Controller;
    entry.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
    Request::new(
        "add the pod's forwarding entry",
        RouteNetlinkMessage::NewNeighbour(entry),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leaves_its_bridge_before_its_group_is_deleted() {
        let marked = mark_for_deletion("dm0");
        let RouteNetlinkMessage::SetLink(link) = marked.message else {
            panic!("a change of the link");
        };
        assert!(link.attributes.contains(&LinkAttribute::Controller(0)));
        assert!(
            link.attributes
                .contains(&LinkAttribute::Group(DELETED_GROUP))
        );
    }
}
