//! The addresses of the node's interfaces, and a watch for their changes.

use std::io;
use std::net::IpAddr;

use futures::StreamExt;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::MulticastGroup;
use tokio::task::AbortHandle;

/// A watch of the addresses in the network namespace in which it was opened.
pub(super) struct Addresses {
    changes: futures::stream::BoxStream<'static, ()>,
    connection: AbortHandle,
}

impl Addresses {
    /// Subscribes to the kernel's address notifications.
    pub(super) fn open() -> io::Result<Self> {
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
    pub(super) async fn changed(&mut self) {
        if self.changes.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// All addresses, sorted, without duplicates.
    #[expect(
        clippy::unused_self,
        reason = "without a watch the list would become outdated"
    )]
    pub(super) fn read(&self) -> io::Result<Vec<IpAddr>> {
        let mut all: Vec<IpAddr> = nix::ifaddrs::getifaddrs()?
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
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
