//! The range of IPv4 addresses for a node's pods.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::lane::Lane;

/// Shortest prefix length of the network.
pub const LENGTH_MIN: u8 = 8;
/// Longest prefix length of the network: one address for pods, beside the gateway's.
pub const LENGTH_MAX: u8 = 30;

/// An invalid range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ipv4RangeError {
    /// Not `address/length`.
    #[error("`{0}` is not an IPv4 network such as 10.1.2.0/24")]
    Malformed(String),
    /// The prefix length is too short or too long.
    #[error("a node's IPv4 network has {LENGTH_MIN} to {LENGTH_MAX} bits, not {0}")]
    Length(u8),
    /// Host bits are set.
    #[error("{address}/{length} has bits set behind its length; the network is {network}/{length}")]
    HostBits {
        /// The address as given.
        address: Ipv4Addr,
        /// Its prefix length.
        length: u8,
        /// The address without its host bits.
        network: Ipv4Addr,
    },
    /// The ends are outside the network, or in the wrong order.
    #[error(
        "{first} to {last} is not a range of {network}/{length}: use addresses from {lowest} to {highest}"
    )]
    Ends {
        /// First address of the range.
        first: Ipv4Addr,
        /// Last address of the range.
        last: Ipv4Addr,
        /// The network.
        network: Ipv4Addr,
        /// Its prefix length.
        length: u8,
        /// Lowest valid address.
        lowest: Ipv4Addr,
        /// Highest valid address.
        highest: Ipv4Addr,
    },
    /// The range has no address beside the gateway's.
    #[error("{0} is the gateway and the range's only address: widen the range")]
    OnlyGateway(Ipv4Addr),
}

/// A range of addresses of one IPv4 network, without the gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Range {
    network: Ipv4Addr,
    length: u8,
    first: Ipv4Addr,
    last: Ipv4Addr,
    gateway: Ipv4Addr,
}

impl Ipv4Range {
    /// A whole network without its first address, its broadcast address and the gateway's, which is the second.
    pub fn new(address: Ipv4Addr, length: u8) -> Result<Self, Ipv4RangeError> {
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
            return Err(Ipv4RangeError::Length(length));
        }
        let hosts = u32::MAX >> length;
        let network = Ipv4Addr::from_bits(address.to_bits() & !hosts);
        if network != address {
            return Err(Ipv4RangeError::HostBits {
                address,
                length,
                network,
            });
        }
        let first = Ipv4Addr::from_bits(network.to_bits() + 1);
        Ok(Self {
            network,
            length,
            first,
            last: Ipv4Addr::from_bits(network.to_bits() + hosts - 1),
            gateway: first,
        })
    }

    /// Restricts the range to `first` to `last`, for a network that has other users.
    pub fn between(self, first: Ipv4Addr, last: Ipv4Addr) -> Result<Self, Ipv4RangeError> {
        let whole = Self::new(self.network, self.length)?;
        if first < whole.first || last > whole.last || first > last {
            return Err(Ipv4RangeError::Ends {
                first,
                last,
                network: self.network,
                length: self.length,
                lowest: whole.first,
                highest: whole.last,
            });
        }
        Self {
            first,
            last,
            ..self
        }
        .with_gateway(self.gateway)
    }

    /// Sets the gateway, which may be outside the range.
    pub fn with_gateway(self, gateway: Ipv4Addr) -> Result<Self, Ipv4RangeError> {
        if self.first == self.last && self.first == gateway {
            return Err(Ipv4RangeError::OnlyGateway(gateway));
        }
        Ok(Self { gateway, ..self })
    }

    /// The network's first address.
    pub fn network(self) -> Ipv4Addr {
        self.network
    }

    /// The network's prefix length.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The network as `address/length`.
    pub fn cidr(self) -> String {
        format!("{}/{}", self.network, self.length)
    }

    /// The gateway, which is never leased.
    pub fn gateway(self) -> Ipv4Addr {
        self.gateway
    }

    /// Whether the address may be leased.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address) && address != self.gateway
    }

    /// The numbers of the range; they may include the gateway's.
    pub(crate) fn lane(self) -> Lane {
        Lane {
            first: self.first.to_bits(),
            count: self.last.to_bits() - self.first.to_bits() + 1,
        }
    }
}

impl fmt::Display for Ipv4Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            length,
            first,
            last,
            ..
        } = self;
        write!(f, "{network}/{length} ({first} to {last})")
    }
}

impl FromStr for Ipv4Range {
    type Err = Ipv4RangeError;

    fn from_str(text: &str) -> Result<Self, Ipv4RangeError> {
        let malformed = || Ipv4RangeError::Malformed(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address = address.parse().ok().ok_or_else(malformed)?;
        let length = length.parse().ok().ok_or_else(malformed)?;
        Self::new(address, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Ipv4Range {
        text.parse().unwrap()
    }

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn the_ends_and_the_gateway_of_a_network_are_not_leased() {
        let range = range("10.1.2.0/24");
        assert_eq!(range.gateway(), address("10.1.2.1"));
        for (text, pods) in [
            ("10.1.2.0", false),
            ("10.1.2.1", false),
            ("10.1.2.2", true),
            ("10.1.2.254", true),
            ("10.1.2.255", false),
            ("10.1.3.2", false),
        ] {
            assert_eq!(range.contains(address(text)), pods, "{text}");
        }
        assert_eq!(range.to_string(), "10.1.2.0/24 (10.1.2.1 to 10.1.2.254)");
    }

    #[test]
    fn the_gateway_may_be_outside_the_range() {
        let range = range("10.1.2.0/24")
            .between(address("10.1.2.10"), address("10.1.2.20"))
            .unwrap();
        assert!(range.contains(address("10.1.2.10")) && !range.contains(address("10.1.2.9")));
        assert_eq!(range.lane().count, 11);
        let moved = range.with_gateway(address("10.1.2.15")).unwrap();
        assert!(!moved.contains(address("10.1.2.15")));
    }

    #[test]
    fn bad_ranges_are_refused_with_the_reason() {
        for (text, reason) in [
            ("10.0.0.0", "not an IPv4 network"),
            ("2001:db8::/96", "not an IPv4 network"),
            ("10.0.0.0/7", "8 to 30 bits"),
            ("10.0.0.0/31", "8 to 30 bits"),
            ("10.0.0.1/24", "the network is 10.0.0.0/24"),
        ] {
            let error = text.parse::<Ipv4Range>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let whole = range("10.0.0.0/24");
        for (first, last) in [
            ("10.0.0.0", "10.0.0.9"),
            ("10.0.0.9", "10.0.0.255"),
            ("10.0.0.9", "10.0.0.8"),
        ] {
            let error = whole.between(address(first), address(last)).unwrap_err();
            assert!(
                error.to_string().contains("10.0.0.1 to 10.0.0.254"),
                "{error}"
            );
        }
        let gateway = whole.gateway();
        assert_eq!(
            whole.between(gateway, gateway),
            Err(Ipv4RangeError::OnlyGateway(gateway))
        );
    }
}
