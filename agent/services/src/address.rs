//! Parsing of addresses and prefixes with Kubernetes' rules, in one canonical form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// An address family; the families share objects, but no service ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order of arrays by family.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Kubernetes' name, as in `ipFamilies` and `addressType`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family with this name; none for other names (`FQDN`).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Index in an array by family.
    pub fn index(self) -> usize {
        match self {
            Self::V4 => 0,
            Self::V6 => 1,
        }
    }
}

/// Parses an address; IPv4 may have leading zeros (decimal), an IPv4-mapped address becomes IPv4.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if text.contains(':') {
        let (head, tail) = text.rsplit_once(':')?;
        let rewritten = format!("{head}:{}", padded_ipv4(tail)?);
        let address: Ipv6Addr = rewritten.parse().ok()?;
        return Some(IpAddr::V6(address).to_canonical());
    }
    padded_ipv4(text).map(IpAddr::V4)
}

/// An IPv4 address whose numbers may have leading zeros.
fn padded_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits = parts.next()?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        *octet = digits.parse().ok().filter(|_| plain)?;
    }
    parts.next().is_none().then_some(octets.into())
}

/// An address in sixteen bytes, IPv4 as mapped: an [`IpAddr`] takes half as much again, which matters for a million. Parsed
/// addresses are never mapped ones, so the conversion is reversible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Packed([u8; 16]);

impl Packed {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }

    pub(crate) fn address(self) -> IpAddr {
        IpAddr::from(self.0).to_canonical()
    }
}

/// An address range with zero host bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix(IpNet);

impl Prefix {
    /// The range of length `length` that contains `address`; none if an address has fewer bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let range = IpNet::new(address, length).ok()?;
        Some(Self(range.trunc()))
    }

    /// The range that contains only this address.
    pub fn single(address: IpAddr) -> Self {
        Self(address.into())
    }

    /// Parses `ADDRESS/LENGTH`; host bits are allowed, and cleared.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let digits = length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = length.parse().ok().filter(|_| digits)?;
        // Kubernetes accepts leading zeros and IPv4-mapped addresses, which `IpNet` does not.
        let parsed = parse_address(address)?;
        let mapped = parsed.is_ipv4() && address.contains(':');
        Self::new(
            parsed,
            if mapped {
                length.checked_sub(96)?
            } else {
                length
            },
        )
    }

    /// Parses a range as [`Prefix::parse`] does, or a single address.
    pub fn parse_or_single(text: &str) -> Option<Self> {
        Self::parse(text).or_else(|| parse_address(text).map(Self::single))
    }

    /// The network address.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// The prefix length in bits.
    pub fn length(&self) -> u8 {
        self.0.prefix_len()
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.address())
    }

    /// Whether the range contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_leading_zeros_and_in_one_spelling() {
        for (text, wanted) in [
            ("010.000.1.09", Some("10.0.1.9")),
            ("::ffff:1.2.3.4", Some("1.2.3.4")),
            ("::ffff:01.2.3.4", Some("1.2.3.4")),
            ("FD00:0:0::01", Some("fd00::1")),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2.3.+4", None),
            ("1.2.3.256", None),
            ("", None),
            (" 1.2.3.4", None),
            ("fe80::1%eth0", None),
        ] {
            let read = parse_address(text).map(|address| address.to_string());
            assert_eq!(read.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn a_packed_address_comes_back_as_it_was() {
        for text in ["10.0.1.9", "fd00::1", "::", "0.0.0.0"] {
            let address = parse_address(text).unwrap();
            assert_eq!(Packed::new(address).address(), address);
        }
    }

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        let prefix = Prefix::parse("10.1.2.3/8").unwrap();
        assert_eq!(prefix.to_string(), "10.0.0.0/8");
        assert!(prefix.contains("10.255.0.1".parse().unwrap()));
        assert!(!prefix.contains("11.0.0.0".parse().unwrap()));
        assert!(!prefix.contains("::".parse().unwrap()));
        let all = Prefix::parse("::/0").unwrap();
        assert!(all.contains("ffff::".parse().unwrap()));
        for wrong in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0",
            "x/8",
            "1.1.1.1/+8",
            "1.1.1.1/",
        ] {
            assert_eq!(Prefix::parse(wrong), None, "{wrong}");
        }
    }
}
