//! Networks of either family.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A network: an address without host bits, and a length in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix(IpNet);

impl Prefix {
    /// The network of one address.
    pub fn host(address: IpAddr) -> Self {
        Self(address.into())
    }

    /// Its length in bits.
    pub fn length(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether its addresses are IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.0.addr().is_ipv6()
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.0.network()
    }

    /// Its last address.
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// Whether an address is in it. One of the other family is not.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether an address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not `network/length` without host bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a network: write network/length without host bits")]
pub struct NoPrefix;

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let net: IpNet = text.parse().map_err(|_error| NoPrefix)?;
        (net == net.trunc()).then_some(Self(net)).ok_or(NoPrefix)
    }
}
