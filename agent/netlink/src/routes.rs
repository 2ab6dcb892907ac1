//! Reads the kernel's routes of both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt;
use netlink_packet_route::route::{RouteAddress, RouteMessage};
use rtnetlink::{Error, Handle, RouteMessageBuilder};

/// The routes of all tables.
pub async fn all(handle: &Handle) -> Result<Vec<RouteMessage>, Error> {
    let mut routes = Vec::new();
    for every in [
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
    ] {
        let found = handle.route().get(every).execute();
        routes.extend(found.try_collect::<Vec<_>>().await?);
    }
    Ok(routes)
}

/// The IP address in a route attribute.
pub fn address(named: &RouteAddress) -> Option<IpAddr> {
    match named {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}
