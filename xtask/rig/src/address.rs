//! The addresses that tests share: one node, its pods, and hosts beside it (RFC 3849).

use std::net::Ipv6Addr;

/// The node's prefix, from which its pods get addresses.
pub const PREFIX: &str = "2001:db8:d0:0:0:1::/96";
/// The node: the first address of its prefix.
pub const NODE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 1);
/// A pod of the node.
pub const POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 1, 0, 0x10);
/// A pod of another node.
pub const FAR_POD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 2, 0, 0x10);
/// The control host.
pub const CONTROL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0xc);
/// A client on the node's link, and no pod.
pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xd0, 0, 0, 0, 0, 0x100);
