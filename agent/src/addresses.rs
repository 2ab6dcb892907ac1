//! The addresses of the node's interfaces, and a watch for their changes.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use dormouse_agent_services::Prefix;
use futures::StreamExt;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use nix::sys::socket::SockaddrStorage;
use rtnetlink::MulticastGroup;
use tokio::task::AbortHandle;

/// The first address of 100::/64, the range whose packets are discarded (RFC 6666): no packet has one of its addresses.
pub(crate) const DISCARD: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);

/// A watch of the addresses in the network namespace in which it was opened.
pub(crate) struct Addresses {
    changes: futures::stream::BoxStream<'static, ()>,
    connection: AbortHandle,
}

impl Addresses {
    /// Subscribes to the kernel's address notifications.
    pub(crate) fn open() -> io::Result<Self> {
        let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, _, messages) = rtnetlink::new_multicast_connection(&groups)?;
        let connection = tokio::spawn(connection).abort_handle();
        let changes = messages.filter_map(async |(message, _)| match message.payload {
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_),
            ) => Some(()),
            _ => None,
        });
        Ok(Self {
            changes: changes.boxed(),
            connection,
        })
    }

    /// Resolves when an address was added or removed; never, if the notifications end. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        if self.changes.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// All addresses, sorted, without duplicates. Without a watch the list becomes outdated.
pub(crate) fn all() -> io::Result<Vec<IpAddr>> {
    read(|_interface| true)
}

/// Those of one interface.
pub(crate) fn of(interface: &str) -> io::Result<Vec<IpAddr>> {
    read(|name| name == interface)
}

fn read(is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<IpAddr>> {
    let mut all: Vec<IpAddr> = nix::ifaddrs::getifaddrs()?
        .filter(|interface| is_wanted(&interface.interface_name))
        .filter_map(|interface| {
            let address = interface.address?;
            let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
            v6.or_else(|| address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip())))
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The networks of an interface, without those of its link-local addresses.
pub(crate) fn networks(interface: &str) -> io::Result<Vec<Prefix>> {
    let entries = nix::ifaddrs::getifaddrs()?.filter(|entry| entry.interface_name == interface);
    let found = entries.filter_map(|entry| {
        let ip = |storage: &SockaddrStorage| {
            let v6 = storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
            v6.or_else(|| storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip())))
        };
        let (address, mask) = (ip(&entry.address?)?, ip(&entry.netmask?)?);
        Prefix::new(address, ones(mask))
    });
    let is_link_local = |network: &Prefix| match network.address() {
        IpAddr::V6(address) => address.is_unicast_link_local(),
        IpAddr::V4(address) => address.is_link_local(),
    };
    Ok(found.filter(|network| !is_link_local(network)).collect())
}

/// The length of a network mask.
fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
    };
    u8::try_from(ones).unwrap_or(u8::MAX)
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
