//! What the agent tells the data path, in the words of the agent: addresses and numbers, no layouts.

use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_ebpf::service::Mode;

/// A range of VIPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VipRange {
    /// Its first address.
    pub prefix: Ipv6Addr,
    /// The prefix's length, at least 108.
    pub length: u8,
    /// The index of its first address.
    pub base: u32,
}

/// An activator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activator {
    /// Its acting prefix, a /96.
    pub prefix: Ipv6Addr,
    /// The next hop to it, on the uplink's link.
    pub via: Ipv6Addr,
}

/// One `pod IP:port` behind a VIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The pod's address.
    pub address: Ipv6Addr,
    /// The port that it listens on.
    pub port: u16,
    /// Its weight among the others; kept, not used yet.
    pub weight: u16,
}

/// What the node shall know of one VIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The VIP's index.
    pub vip: u32,
    /// To an activator, or straight to the backends.
    pub mode: Mode,
    /// Of 255 new connections in [`Mode::Serve`], how many go to an activator all the same.
    pub share: u8,
    /// Who is behind it; at most 65,535.
    pub backends: Vec<Backend>,
    /// Past the end of the node lease it acts as [`Mode::Proxy`].
    pub leased: bool,
    /// The first packet raises a wake event.
    pub asleep: bool,
    /// There is no such VIP.
    pub gone: bool,
    /// The VIP's port; 0: any.
    pub port: u16,
}

/// The addresses that the data path knows a pod by; IPv4 is mapped.
pub fn pod_keys(address: Ipv6Addr, address4: Option<Ipv4Addr>) -> impl Iterator<Item = Ipv6Addr> {
    let ipv4 = address4.map(|address| address.to_ipv6_mapped());
    [address].into_iter().chain(ipv4)
}

/// A pod of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodEntry {
    /// Its address, inside the node prefix.
    pub address: Ipv6Addr,
    /// Its IPv4 address, where it has one.
    pub address4: Option<Ipv4Addr>,
    /// The host's end of its link.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Nothing has to wait on the host's end of its link, so packets may be led past that.
    pub direct: bool,
}
