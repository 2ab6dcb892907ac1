//! Attributes of links.

use netlink_packet_route::link::{LinkAttribute, LinkMessage};

/// The MTU of a link in bytes, if the message contains it.
pub fn mtu(link: &LinkMessage) -> Option<u32> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        })
}
