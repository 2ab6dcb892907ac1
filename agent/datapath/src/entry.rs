//! The data path's input types: addresses and numbers, without map layouts.

use std::net::{Ipv4Addr, Ipv6Addr};

use dormouse_ebpf::service::Mode;

/// A range of apps' VIPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VipRange {
    /// Network address.
    pub prefix: Ipv6Addr,
    /// Prefix length in bits, at least 108.
    pub length: u8,
    /// Index of the first address in the `svc` map.
    pub base: u32,
}

/// An activator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activator {
    /// Its acting prefix, a /96.
    pub prefix: Ipv6Addr,
    /// Next hop to it, on the uplink's link.
    pub via: Ipv6Addr,
}

/// A backend of an app's VIP: pod address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The pod's address.
    pub address: Ipv6Addr,
    /// The port that the pod listens on.
    pub port: u16,
    /// Weight; stored, not used yet.
    pub weight: u16,
}

/// The entry of an app's VIP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Index of the VIP.
    pub vip: u32,
    /// Proxy (to an activator) or serve (to the backends).
    pub mode: Mode,
    /// In [`Mode::Serve`], the share of new connections that go to an activator, of 255.
    pub share: u8,
    /// The backends; at most 65,535.
    pub backends: Vec<Backend>,
    /// Under the node lease: after its end the entry acts as [`Mode::Proxy`].
    pub leased: bool,
    /// Asleep: the first packet raises a wake event.
    pub asleep: bool,
    /// There is no such VIP any more.
    pub gone: bool,
    /// Port of the VIP; 0: any.
    pub port: u16,
    /// IP protocol number of the port; any other than TCP, UDP and SCTP: all.
    pub protocol: u8,
}

/// The keys of a pod in the pod table; IPv4 is mapped.
pub fn pod_keys(address: Ipv6Addr, address4: Option<Ipv4Addr>) -> impl Iterator<Item = Ipv6Addr> {
    let ipv4 = address4.map(|address| address.to_ipv6_mapped());
    [address].into_iter().chain(ipv4)
}

/// A pod of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodEntry {
    /// IPv6 address, inside the node prefix.
    pub address: Ipv6Addr,
    /// IPv4 address, if it has one.
    pub address4: Option<Ipv4Addr>,
    /// ifindex of the host side.
    pub ifindex: u32,
    /// Link-layer address of the pod's side.
    pub mac: [u8; 6],
    /// The host side has no queueing qdisc, so packets to the pod may bypass it.
    pub direct: bool,
}
