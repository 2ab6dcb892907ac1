//! The IPv4 addresses that a node may give to its pods beside their IPv6 ones.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::lane::Lane;

/// The widest network, in bits.
pub const LENGTH_MIN: u8 = 8;
/// The narrowest network, in bits: two addresses remain.
pub const LENGTH_MAX: u8 = 30;

/// Why something is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ipv4RangeError {
    /// Not `address/length`.
    #[error("`{0}` is not an IPv4 network such as 10.1.2.0/24")]
    Malformed(String),
    /// Too wide or too narrow.
    #[error("a node's IPv4 network has {LENGTH_MIN} to {LENGTH_MAX} bits, not {0}")]
    Length(u8),
    /// Bits are set behind the length.
    #[error("{address}/{length} has bits set behind its length; the network is {network}/{length}")]
    HostBits {
        /// The address as given.
        address: Ipv4Addr,
        /// Its length in bits.
        length: u8,
        /// The address without the bits behind the length.
        network: Ipv4Addr,
    },
    /// The ends are not in the network, or in the wrong order.
    #[error(
        "{first} to {last} is no range of {network}/{length}, which has {lowest} to {highest} for pods"
    )]
    Ends {
        /// The first address as given.
        first: Ipv4Addr,
        /// The last address as given.
        last: Ipv4Addr,
        /// The network.
        network: Ipv4Addr,
        /// Its length in bits.
        length: u8,
        /// The lowest address that would do.
        lowest: Ipv4Addr,
        /// The highest address that would do.
        highest: Ipv4Addr,
    },
    /// Nothing is left for pods.
    #[error("{0} is the range's only address and the gateway's too: widen the range")]
    OnlyGateway(Ipv4Addr),
}

/// Addresses of one IPv4 network, the gateway's left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Range {
    network: Ipv4Addr,
    length: u8,
    first: Ipv4Addr,
    last: Ipv4Addr,
    gateway: Ipv4Addr,
}

impl Ipv4Range {
    /// All of a network but its first address, its broadcast address, and the gateway's, which is the second.
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

    /// Only `first` to `last`, for a network that is shared with others.
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

    /// Another gateway; it may lie outside of the range.
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

    /// The network's length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The network as `address/length`.
    pub fn cidr(self) -> String {
        format!("{}/{}", self.network, self.length)
    }

    /// The gateway: never given to a pod.
    pub fn gateway(self) -> Ipv4Addr {
        self.gateway
    }

    /// Whether a pod may have the address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address) && address != self.gateway
    }

    /// What addresses are drawn from; the gateway's may be among them.
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
    fn a_network_s_ends_and_its_gateway_are_no_pod_s() {
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
    fn a_part_of_a_network_may_have_its_gateway_elsewhere() {
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
