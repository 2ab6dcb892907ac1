//! Unreachable routes for addresses of the node that no pod has: the default route would send such packets back to where they
//! came from.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};

use dormouse_agent_netlink::routes;

/// The protocol number of these routes, by which later agents recognize them; not assigned to other software in `rt_protos`.
pub const PROTOCOL: RouteProtocol = RouteProtocol::Other(0xd0);
/// Metric: lower priority than every other route to the same network, such as the connected route of a link.
const METRIC: u32 = 0xffff_0000;

/// A network: its address and prefix length.
pub type Net = (IpAddr, u8);

/// Creates unreachable routes for these networks, and deletes those of a previous agent for others.
pub(super) async fn settle(handle: &Handle, wanted: &HashSet<Net>) -> Result<(), rtnetlink::Error> {
    let mut there = HashSet::new();
    for route in routes::all(handle)
        .await?
        .into_iter()
        .filter(is_unreachable_route)
    {
        if destination(&route).is_some_and(|net| wanted.contains(&net) && there.insert(net)) {
            continue;
        }
        handle.route().del(route).execute().await?;
    }
    for net in wanted.difference(&there) {
        handle.route().add(refusal(*net)).execute().await?;
    }
    Ok(())
}

/// Whether the route is an unreachable route of an agent.
pub fn is_unreachable_route(route: &RouteMessage) -> bool {
    route.header.kind == RouteType::Unreachable && route.header.protocol == PROTOCOL
}

fn refusal((address, length): Net) -> RouteMessage {
    let mut route = match address {
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, length)
            .build(),
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, length)
            .build(),
    };
    route.header.kind = RouteType::Unreachable;
    route.header.protocol = PROTOCOL;
    route.attributes.push(RouteAttribute::Priority(METRIC));
    route
}

fn destination(route: &RouteMessage) -> Option<Net> {
    let mut attributes = route.attributes.iter();
    let address = attributes.find_map(|attribute| match attribute {
        RouteAttribute::Destination(named) => routes::address(named),
        _ => None,
    });
    Some((address?, route.header.destination_prefix_length))
}
