//! Links, neighbour entries and routes of the calling thread's network namespace, read by netlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use rtnetlink::Handle;

use dormouse_agent_netlink::routes;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// ifindex.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// IFLA_IFALIAS; the agent marks its own interfaces with it.
    pub alias: String,
    /// ifindex of the bridge that the interface is a port of.
    pub controller: Option<u32>,
    /// Link-layer address; empty for interfaces without one.
    pub mac: Vec<u8>,
    /// The interface is a bridge.
    pub is_bridge: bool,
}

/// A neighbour entry of the ARP or NDP table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// The interface; for a proxy entry, the one on which the kernel answers solicitations.
    pub ifindex: u32,
    /// Link-layer address; none in a proxy entry.
    pub mac: Option<[u8; 6]>,
    /// NUD_PERMANENT: the entry does not age.
    pub permanent: bool,
    /// A proxy entry: the kernel answers solicitations for the address.
    pub proxy: bool,
    /// The netlink message, used to delete the entry.
    pub message: NeighbourMessage,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Network address of the destination.
    pub prefix: IpAddr,
    /// Length of the destination prefix, in bits.
    pub length: u8,
    /// Address of the next hop.
    pub via: Option<IpAddr>,
    /// The outgoing interface.
    pub ifindex: Option<u32>,
    /// The netlink message, used to delete the route.
    pub message: RouteMessage,
}

/// A snapshot of a network namespace.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// All interfaces.
    pub links: Vec<Link>,
    /// All neighbour and proxy entries.
    pub neighbours: Vec<Neighbour>,
    /// The routes of all tables.
    pub routes: Vec<Route>,
}

impl Kernel {
    /// Reads the snapshot. Blocks the thread.
    pub fn look() -> io::Result<Self> {
        ask(async |handle| {
            let links = handle.link().get().execute().try_collect::<Vec<_>>();
            let links = links.await.map_err(io::Error::other)?;
            let mut neighbours = Vec::new();
            for (family, proxies) in [
                (AddressFamily::Inet6, false),
                (AddressFamily::Inet6, true),
                (AddressFamily::Inet, false),
            ] {
                let mut request = handle.neighbours().get().set_address_family(family);
                if proxies {
                    request = request.proxies();
                }
                let found = request.execute().try_collect::<Vec<_>>().await;
                neighbours.extend(found.map_err(io::Error::other)?);
            }
            let routes = routes::all(&handle).await.map_err(io::Error::other)?;
            Ok(Self {
                links: links.iter().map(Link::read).collect(),
                neighbours: neighbours.into_iter().filter_map(Neighbour::read).collect(),
                routes: routes.into_iter().filter_map(Route::read).collect(),
            })
        })
    }

    /// The interface with this ifindex.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The interface's name, or its ifindex if it is not in this namespace.
    pub fn name(&self, index: u32) -> String {
        self.link(index)
            .map_or_else(|| index.to_string(), |link| link.name.clone())
    }
}

/// Runs netlink requests in the calling thread's network namespace. Blocks the thread.
pub fn ask<T>(work: impl AsyncFnOnce(Handle) -> io::Result<T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        work(handle).await
    })
}

impl Link {
    fn read(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                LinkAttribute::Address(mac) => link.mac.clone_from(mac),
                LinkAttribute::LinkInfo(infos) => {
                    link.is_bridge |= infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
                }
                _ => {}
            }
        }
        link
    }
}

impl Neighbour {
    fn read(message: NeighbourMessage) -> Option<Self> {
        let (mut address, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => {
                    address = Some(IpAddr::V6(*found));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => {
                    address = Some(IpAddr::V4(*found));
                }
                NeighbourAttribute::LinkLayerAddress(found) => {
                    mac = found.as_slice().try_into().ok();
                }
                _ => {}
            }
        }
        Some(Self {
            address: address?,
            ifindex: message.header.ifindex,
            mac,
            permanent: message.header.state == NeighbourState::Permanent,
            proxy: message.header.flags.contains(NeighbourFlags::Proxy),
            message,
        })
    }
}

impl Route {
    fn read(message: RouteMessage) -> Option<Self> {
        let mut prefix = match message.header.address_family {
            AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let (mut via, mut ifindex) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(found) => prefix = routes::address(found)?,
                RouteAttribute::Gateway(found) => via = routes::address(found),
                RouteAttribute::Oif(index) => ifindex = Some(*index),
                _ => {}
            }
        }
        let length = message.header.destination_prefix_length;
        Some(Self {
            prefix,
            length,
            via,
            ifindex,
            message,
        })
    }
}
