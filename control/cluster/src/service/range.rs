//! The ranges of cluster IPs: one of each family that the cluster has, the preferred one first.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::VipRange;

/// Host bits of a range, at most and at least; kube-apiserver's limits.
const HOST_BITS: std::ops::RangeInclusive<u8> = 3..=20;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A prefix from which cluster IPs are given. An address is named by its offset from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    prefix: IpAddr,
    len: u8,
}

/// The ranges of a cluster: of the family of Services that name none, and of the other if it has both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRanges(Vec<ServiceRange>);

/// An error of the ranges.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RangeError {
    /// The text is not `prefix/length`.
    #[error("`{0}` is not a range of cluster IPs: write prefix/length, such as fd00:96::/108")]
    Malformed(String),
    /// The range is too large or too small.
    #[error(
        "the range of cluster IPs {0} has not 8 to 1048576 addresses: use a length from /108 to /125, of IPv4 from /12 to /29"
    )]
    Size(String),
    /// The address has host bits set.
    #[error(
        "the range of cluster IPs {0} has host bits set: clear all bits after the prefix length"
    )]
    HostBits(String),
    /// Not one range of each family.
    #[error("the ranges of cluster IPs are {0}: give one, or one of IPv6 and one of IPv4")]
    Families(String),
    /// Cluster IPs and apps' VIPs must differ.
    #[error("the range of cluster IPs {range} overlaps with VIP range {vips}: choose another")]
    Overlap {
        /// The range of cluster IPs.
        range: ServiceRange,
        /// The VIP range.
        vips: VipRange,
    },
}

impl IpFamily {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Kubernetes' name of the family.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V4, Self::V6]
            .into_iter()
            .find(|family| family.as_str() == name)
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl ServiceRange {
    /// The family of its addresses.
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.prefix)
    }

    /// Number of addresses, 8 to 2^20.
    pub fn size(&self) -> u32 {
        1 << (self.family().bits() - self.len)
    }

    /// The offsets of addresses that are given: not the first, which is every router's, nor IPv4's broadcast address.
    pub(crate) fn offsets(&self) -> std::ops::Range<u32> {
        1..self.size() - u32::from(self.family() == IpFamily::V4)
    }

    /// The offset of an address inside.
    pub(crate) fn offset_of(&self, address: IpAddr) -> Option<u32> {
        if IpFamily::of(address) != self.family() {
            return None;
        }
        let offset = bits(address).checked_sub(bits(self.prefix))?;
        u32::try_from(offset)
            .ok()
            .filter(|offset| *offset < self.size())
    }

    /// The address with this offset.
    pub(crate) fn address_of(&self, offset: u32) -> IpAddr {
        match self.prefix {
            IpAddr::V4(prefix) => Ipv4Addr::from_bits(prefix.to_bits() | offset).into(),
            IpAddr::V6(prefix) => Ipv6Addr::from_bits(prefix.to_bits() | u128::from(offset)).into(),
        }
    }

    fn overlaps(&self, vips: &VipRange) -> bool {
        let begins_inside = match self.prefix {
            IpAddr::V4(_) => false,
            IpAddr::V6(prefix) => vips.index_of(prefix).is_some(),
        };
        begins_inside || self.offset_of(vips.prefix().into()).is_some()
    }
}

/// An address as a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl ServiceRanges {
    /// The ranges in these texts, which no VIP range may overlap.
    pub fn parse(texts: &[String], vips: &[VipRange]) -> Result<Self, RangeError> {
        let ranges = texts.iter().map(|text| text.parse());
        let ranges: Vec<ServiceRange> = ranges.collect::<Result<_, _>>()?;
        let is_fine = match ranges.as_slice() {
            [_] => true,
            [first, second] => first.family() != second.family(),
            _ => false,
        };
        if !is_fine {
            return Err(RangeError::Families(texts.join(", ")));
        }
        for range in &ranges {
            if let Some(vips) = vips.iter().find(|vips| range.overlaps(vips)) {
                return Err(RangeError::Overlap {
                    range: *range,
                    vips: *vips,
                });
            }
        }
        Ok(Self(ranges))
    }

    /// The families of the cluster, the preferred one first.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> {
        self.0.iter().map(ServiceRange::family)
    }

    /// The family of Services that name none.
    pub fn preferred(&self) -> IpFamily {
        self.families().next().unwrap_or(IpFamily::V6)
    }

    /// Whether the cluster has cluster IPs of this family.
    pub fn has(&self, family: IpFamily) -> bool {
        self.families().any(|one| one == family)
    }

    /// Whether the cluster has both families.
    pub fn is_dual(&self) -> bool {
        self.0.len() == 2
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServiceRange> {
        self.0.iter()
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.len)
    }
}

/// Parses `prefix/length`.
impl FromStr for ServiceRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            let (prefix, len) = text.split_once('/')?;
            Some((prefix.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?))
        };
        let (prefix, len) = parts().ok_or_else(|| RangeError::Malformed(text.to_owned()))?;
        let host = IpFamily::of(prefix).bits().checked_sub(len);
        if !host.is_some_and(|host| HOST_BITS.contains(&host)) {
            return Err(RangeError::Size(text.to_owned()));
        }
        let range = Self { prefix, len };
        if bits(prefix) & u128::from(range.size() - 1) != 0 {
            return Err(RangeError::HostBits(text.to_owned()));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<ServiceRanges, RangeError> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        ServiceRanges::parse(&texts, &["fd00:10::/108".parse().unwrap()])
    }

    #[test]
    fn a_range_is_of_one_family_and_has_no_vips() {
        for fine in [&["fd00:96::/108"][..], &["10.96.0.0/12", "fd00:96::/125"]] {
            assert!(parse(fine).is_ok(), "{fine:?}");
        }
        for wrong in [
            &[][..],
            &["x"],
            &["fd00:96::"],
            &["fd00:96::/107"],
            &["fd00:96::/129"],
            &["10.96.0.0/30"],
            &["10.96.0.1/16"],
            &["10.96.0.0/16", "10.97.0.0/16"],
            &["fd00:10::/112"],
            &["fd00:96::/108", "10.96.0.0/16", "fd00:97::/108"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_has_the_offset_that_it_is_given_by() {
        for (text, first, last) in [
            ("fd00:96::/112", "fd00:96::1", "fd00:96::ffff"),
            ("10.96.0.0/16", "10.96.0.1", "10.96.255.254"),
        ] {
            let range: ServiceRange = text.parse().unwrap();
            let offsets = range.offsets();
            assert_eq!(range.address_of(offsets.start).to_string(), first);
            assert_eq!(range.address_of(offsets.end - 1).to_string(), last);
            assert_eq!(
                range.offset_of(last.parse().unwrap()),
                Some(offsets.end - 1)
            );
            for outside in ["fd00:97::", "fd00:95::1", "10.97.0.0", "10.95.255.255"] {
                assert_eq!(range.offset_of(outside.parse().unwrap()), None);
            }
        }
    }
}
