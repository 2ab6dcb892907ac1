//! The kernel's route to an address.

use std::net::IpAddr;

use futures::{StreamExt as _, pin_mut};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::RouteMessageBuilder;

/// The route to an address as text, or the reason why there is none.
pub fn to(address: IpAddr) -> String {
    let looked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(look(address)));
    match looked {
        Ok(route) => text(&route),
        Err(why) => format!("none to {address}: {why}"),
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

fn text(route: &RouteMessage) -> String {
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
    let Some(index) = interface else {
        return via;
    };
    let name = nix::net::if_::if_indextoname(index);
    let name = name.map_or_else(
        |_gone| format!("interface {index}"),
        |name| name.to_string_lossy().into_owned(),
    );
    format!("{via}, by {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reaches_itself() {
        let way = to("127.0.0.1".parse().unwrap());
        assert!(way.ends_with("by lo"), "{way}");
    }
}
