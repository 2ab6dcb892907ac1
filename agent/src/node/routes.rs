//! Keeps the ways to the activators: one route per acting prefix, by the next hop that control names.

use std::io;
use std::net::Ipv6Addr;

use rtnetlink::{Handle, RouteMessageBuilder};

/// Sets routes on the uplink.
pub struct Routes {
    handle: Handle,
    uplink: u32,
}

impl Routes {
    /// Routes in the current network namespace, out of the interface with this index.
    pub fn open(uplink: u32) -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self { handle, uplink })
    }

    /// Leads a prefix to its next hop, in place of another one.
    pub async fn lead(
        &self,
        prefix: Ipv6Addr,
        length: u8,
        via: Ipv6Addr,
    ) -> Result<(), rtnetlink::Error> {
        let route = RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(prefix, length)
            .gateway(via)
            .output_interface(self.uplink);
        self.handle
            .route()
            .add(route.build())
            .replace()
            .execute()
            .await
    }
}
