//! The kernel's route to an address.

use std::net::IpAddr;

use futures::{StreamExt as _, pin_mut};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::RouteMessageBuilder;

/// A route.
#[derive(Debug)]
pub struct Route {
    /// It as text, or the reason why there is none.
    pub text: String,
    /// The index of its interface.
    pub interface: Option<u32>,
}

/// The route to an address.
pub fn to(address: IpAddr) -> Route {
    let looked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(look(address)));
    match looked {
        Ok(route) => read(&route),
        Err(why) => Route {
            text: format!("none to {address}: {why}"),
            interface: None,
        },
    }
}

async fn look(address: IpAddr) -> Result<RouteMessage, String> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let length = if address.is_ipv4() { 32 } else { 128 };
    let request = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(address, length)
        .map_err(|error| error.to_string())?;
    let found = handle.route().get(request.build()).execute();
    pin_mut!(found);
    match found.next().await {
        Some(Ok(route)) => Ok(route),
        Some(Err(rtnetlink::Error::NetlinkError(error))) => Err(error.to_io().to_string()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the kernel sent no reply".to_owned()),
    }
}

fn read(route: &RouteMessage) -> Route {
    let mut via = None;
    let mut interface = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(hop)) => via = Some(IpAddr::V4(*hop)),
            RouteAttribute::Gateway(RouteAddress::Inet6(hop)) => via = Some(IpAddr::V6(*hop)),
            RouteAttribute::Oif(index) => interface = Some(*index),
            _ => {}
        }
    }
    let via = via.map_or_else(|| "on the link".to_owned(), |via| format!("via {via}"));
    Route {
        text: interface.map_or_else(|| via.clone(), |index| format!("{via}, by {}", name(index))),
        interface,
    }
}

fn name(index: u32) -> String {
    nix::net::if_::if_indextoname(index).map_or_else(
        |_gone| format!("interface {index}"),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reaches_itself() {
        let way = to("127.0.0.1".parse().unwrap());
        assert!(way.text.ends_with("by lo"), "{}", way.text);
        assert_eq!(way.interface, Some(1), "lo is the first");
    }
}
