//! The node's prefix, and the low 32 bits of a pod's address: its cohort and its number.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Width of a suffix's number, in bits; the 22 bits above are the cohort.
pub const NUMBER_BITS: u32 = 10;
/// Suffixes below this one belong to the host (`P::` to `P::f`).
pub const HOST_SUFFIXES: u32 = 16;
/// Shortest prefix length.
pub const LENGTH_MIN: u8 = 64;
/// Longest prefix length: 240 addresses for pods.
pub const LENGTH_MAX: u8 = 120;

const _: () = assert!(HOST_SUFFIXES < 1 << (128 - LENGTH_MAX));

/// The low 32 bits of a pod's address: `cohort:22 | number:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Suffix(pub u32);

impl Suffix {
    pub(crate) const fn new(cohort: u32, number: u32) -> Self {
        Self(cohort << NUMBER_BITS | number)
    }

    /// The pod's cohort, or one of its aliases.
    pub fn cohort(self) -> u32 {
        self.0 >> NUMBER_BITS
    }

    /// The pod's number within its cohort on this node.
    pub fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// An invalid node prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not `address/length`.
    #[error("`{0}` is not an IPv6 prefix such as 2001:db8::/96")]
    Malformed(String),
    /// The prefix length is too short or too long.
    #[error("a node prefix has {LENGTH_MIN} to {LENGTH_MAX} bits, not {0}")]
    Length(u8),
    /// Host bits are set.
    #[error("{address}/{length} has bits set behind its length; the prefix is {network}/{length}")]
    HostBits {
        /// The address as given.
        address: Ipv6Addr,
        /// Its prefix length.
        length: u8,
        /// The address without its host bits.
        network: Ipv6Addr,
    },
}

/// The prefix of a node's pod addresses, usually a /96.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePrefix {
    network: Ipv6Addr,
    length: u8,
}

impl NodePrefix {
    /// Fails if the length is out of range or host bits are set.
    pub fn new(address: Ipv6Addr, length: u8) -> Result<Self, PrefixError> {
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
            return Err(PrefixError::Length(length));
        }
        let network = Ipv6Addr::from_bits(address.to_bits() & !host_mask(length));
        if network != address {
            return Err(PrefixError::HostBits {
                address,
                length,
                network,
            });
        }
        Ok(Self { network, length })
    }

    /// The first address.
    pub fn network(self) -> Ipv6Addr {
        self.network
    }

    /// The prefix length.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The address with this suffix.
    pub fn address(self, suffix: Suffix) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.network.to_bits() | u128::from(suffix.0))
    }

    /// The suffix of an address; `None` if the address is outside the prefix or differs from it above the low 32 bits.
    pub fn suffix(self, address: Ipv6Addr) -> Option<Suffix> {
        let low = address.to_bits() ^ self.network.to_bits();
        if low & !host_mask(self.length) != 0 {
            return None;
        }
        u32::try_from(low).ok().map(Suffix)
    }

    /// The highest suffix.
    pub(crate) fn last(self) -> Suffix {
        Suffix(u32::try_from(host_mask(self.length)).unwrap_or(u32::MAX))
    }
}

fn host_mask(length: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(length)).unwrap_or(0)
}

impl fmt::Display for NodePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

impl FromStr for NodePrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let malformed = || PrefixError::Malformed(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address = address.parse().ok().ok_or_else(malformed)?;
        let length = length.parse().ok().ok_or_else(malformed)?;
        Self::new(address, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_its_suffix_convert_into_each_other() {
        let prefix: NodePrefix = "2001:db8:d0:0:0:1::/96".parse().unwrap();
        let suffix = Suffix(0x1_0002);
        assert_eq!(prefix.address(suffix).to_string(), "2001:db8:d0::1:1:2");
        assert_eq!(prefix.suffix(prefix.address(suffix)), Some(suffix));
        assert_eq!((suffix.cohort(), suffix.number()), (64, 2));
        assert_eq!(
            prefix.suffix("2001:db8:d0:0:0:2:1:2".parse().unwrap()),
            None
        );
        assert_eq!(prefix.to_string(), "2001:db8:d0::1:0:0/96");
    }

    #[test]
    fn a_wide_prefix_uses_only_its_low_32_bits() {
        let wide: NodePrefix = "2001:db8::/64".parse().unwrap();
        assert_eq!(wide.suffix("2001:db8::1:2:3".parse().unwrap()), None);
    }

    #[test]
    fn bad_prefixes_are_refused_with_the_reason() {
        for (text, reason) in [
            ("2001:db8::", "not an IPv6 prefix"),
            ("10.0.0.0/8", "not an IPv6 prefix"),
            ("2001:db8::/63", "64 to 120 bits"),
            ("2001:db8::/121", "64 to 120 bits"),
            ("2001:db8::1/96", "the prefix is 2001:db8::/96"),
        ] {
            let error = text.parse::<NodePrefix>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
