//! A node's prefix and how the low 32 bits of a pod's address are read, so that an address explains itself.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Bits of a suffix that number the pods of one cohort; the 22 above name the cohort.
pub const NUMBER_BITS: u32 = 10;
/// Suffixes below this one belong to the host (`P::` to `P::f`).
pub const HOST_SUFFIXES: u32 = 16;
/// The widest prefix a node may own, in bits.
pub const LENGTH_MIN: u8 = 64;
/// The narrowest prefix a node may own, in bits: 240 pods remain.
pub const LENGTH_MAX: u8 = 120;

const _: () = assert!(HOST_SUFFIXES < 1 << (128 - LENGTH_MAX));

/// The low 32 bits of a pod's address: `cohort:22 | number:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Suffix(pub u32);

impl Suffix {
    pub(crate) const fn new(cohort: u32, number: u32) -> Self {
        Self(cohort << NUMBER_BITS | number)
    }

    /// What the pod is: the set it belongs to.
    pub fn cohort(self) -> u32 {
        self.0 >> NUMBER_BITS
    }

    /// Which one of its cohort's pods on this node it is.
    pub fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Why a text is no node prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// Not `address/length`.
    #[error("`{0}` is not an IPv6 prefix such as 2001:db8::/96")]
    Malformed(String),
    /// Too wide or too narrow.
    #[error("a node prefix has {LENGTH_MIN} to {LENGTH_MAX} bits, not {0}")]
    Length(u8),
    /// Bits are set behind the prefix.
    #[error("{address}/{length} has bits set behind its length; the prefix is {network}/{length}")]
    HostBits {
        /// The address as given.
        address: Ipv6Addr,
        /// Its length in bits.
        length: u8,
        /// The address without the bits behind the length.
        network: Ipv6Addr,
    },
}

/// The prefix that a node owns; /96 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePrefix {
    network: Ipv6Addr,
    length: u8,
}

impl NodePrefix {
    /// Checks length (in bits) and host bits.
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

    /// Length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The address that a suffix names.
    pub fn address(self, suffix: Suffix) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.network.to_bits() | u128::from(suffix.0))
    }

    /// The suffix of an address of this prefix; none for a foreign one and for those past the low 32 bits.
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
    fn a_prefix_names_pods_by_its_low_32_bits() {
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
