//! Routes to the activators: one per acting prefix, via the next hop in control's settings.

use std::io;
use std::net::Ipv6Addr;

use rtnetlink::{Handle, RouteMessageBuilder};

/// Sets routes through the uplink.
pub struct Routes {
    handle: Handle,
    uplink: u32,
}

impl Routes {
    /// Opens a netlink socket in the current network namespace; `uplink` is the interface's index.
    pub fn open(uplink: u32) -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self { handle, uplink })
    }

    /// Sets the route of a prefix, and replaces an earlier one.
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
