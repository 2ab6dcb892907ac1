//! Destinations of packets to Services: an address and port, or a number at the nodes' addresses.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::address::Family;
use crate::key::Protocol;

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vip {
    /// The destination address.
    pub address: IpAddr,
    /// The destination port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            SocketAddr::new(self.address, self.port),
            self.protocol
        )
    }
}

/// A node port: a number at nodes' addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodePort {
    /// The family of the addresses.
    pub family: Family,
    /// The destination port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}
