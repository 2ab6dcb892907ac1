//! VIP ranges, and the VIP indexes that are the keys of the kernel's maps.

pub(crate) mod pool;

use std::{fmt, net::Ipv6Addr, ops::Range, str::FromStr};

/// VIP indexes are below this: the maps have 2^20 entries.
pub const VIP_INDEX_END: u32 = 1 << 20;
/// Offset of the first address of a range that is allocated; lower ones are for apps with a fixed VIP.
pub const VIP_ALLOCATE_FROM: u32 = 16;

/// The index of a VIP in the kernel's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VipIndex(pub u32);

/// An IPv6 prefix from which VIPs are allocated. The index of a VIP is the base plus its host bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VipRange {
    prefix: Ipv6Addr,
    len: u8,
    base: u32,
}

/// An error of a VIP range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VipError {
    /// The text is not `prefix/length`.
    #[error("`{0}` is not a VIP range: write prefix/length, such as fd00:10::/108")]
    Malformed(String),
    /// The range from its base on exceeds the maps.
    #[error(
        "VIP range {prefix}/{len} from index {base} does not fit below index 1048576: use /108 or longer"
    )]
    TooLarge {
        /// First address.
        prefix: Ipv6Addr,
        /// Prefix length, bits.
        len: u8,
        /// Index of the first address.
        base: u32,
    },
    /// The address has host bits set.
    #[error("VIP range {0} has host bits set: clear all bits after the prefix length")]
    HostBits(String),
}

impl VipRange {
    /// The range `prefix/len`, whose first address has the index `base`.
    pub fn new(prefix: Ipv6Addr, len: u8, base: u32) -> Result<Self, VipError> {
        let too_large = VipError::TooLarge { prefix, len, base };
        if !(108..=128).contains(&len) {
            return Err(too_large);
        }
        let range = Self { prefix, len, base };
        if range.low_bits(prefix) != 0 {
            return Err(VipError::HostBits(format!("{prefix}/{len}")));
        }
        match base.checked_add(range.size()) {
            Some(end) if end <= VIP_INDEX_END => Ok(range),
            _ => Err(too_large),
        }
    }

    /// The first address of the range.
    pub fn prefix(&self) -> Ipv6Addr {
        self.prefix
    }

    /// Prefix length, 108 to 128.
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// Index of the first address.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// Number of addresses, at most 2^20.
    pub fn size(&self) -> u32 {
        1 << (128 - u32::from(self.len))
    }

    /// The index of `address`; `None` if it lies outside the range.
    pub fn index_of(&self, address: Ipv6Addr) -> Option<VipIndex> {
        let low = self.low_bits(address);
        let inside = address.to_bits() - u128::from(low) == self.prefix.to_bits();
        inside.then(|| VipIndex(self.base + low))
    }

    /// The address with this index; `None` if it lies outside the range.
    pub fn address_of(&self, index: VipIndex) -> Option<Ipv6Addr> {
        let low = index
            .0
            .checked_sub(self.base)
            .filter(|low| *low < self.size())?;
        Some(Ipv6Addr::from_bits(self.prefix.to_bits() | u128::from(low)))
    }

    /// The indexes that are given to apps that name none; empty in a range that is too small.
    fn allocated(&self) -> Range<u32> {
        self.base + VIP_ALLOCATE_FROM..self.base + self.size()
    }

    /// The host bits of `address`, at most 20.
    fn low_bits(&self, address: Ipv6Addr) -> u32 {
        let [.., a, b, c, d] = address.octets();
        u32::from_be_bytes([a, b, c, d]) & (self.size() - 1)
    }
}

impl fmt::Display for VipRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.len)
    }
}

/// Parses `prefix/length`, optionally followed by `@base`.
impl FromStr for VipRange {
    type Err = VipError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            let (cidr, base) = text.split_once('@').unwrap_or((text, "0"));
            let (prefix, len) = cidr.split_once('/')?;
            Some((prefix.parse().ok()?, len.parse().ok()?, base.parse().ok()?))
        };
        let (prefix, len, base) = parts().ok_or_else(|| VipError::Malformed(text.to_owned()))?;
        Self::new(prefix, len, base)
    }
}

/// The index of `address`; `None` if no range contains it.
pub fn index_of(ranges: &[VipRange], address: Ipv6Addr) -> Option<VipIndex> {
    ranges.iter().find_map(|range| range.index_of(address))
}

/// The address with this index; `None` if no range contains it.
pub fn address_of(ranges: &[VipRange], index: VipIndex) -> Option<Ipv6Addr> {
    ranges.iter().find_map(|range| range.address_of(index))
}

/// Whether indexes such as this one are given to apps that name none.
pub(crate) fn is_allocated(ranges: &[VipRange], index: VipIndex) -> bool {
    ranges
        .iter()
        .any(|range| range.allocated().contains(&index.0))
}

/// The lowest free index above `last`, else the lowest of all, from [`VIP_ALLOCATE_FROM`] of a range on. `taken` must
/// be sorted. `None` if every range is full.
pub(crate) fn next_free(
    ranges: &[VipRange],
    taken: &[VipIndex],
    last: Option<VipIndex>,
) -> Option<VipIndex> {
    let mut all: Vec<Range<u32>> = ranges.iter().map(VipRange::allocated).collect();
    all.sort_unstable_by_key(|range| range.start);
    let next = last.map_or(0, |last| last.0 + 1);
    let above = all.iter().map(|range| range.start.max(next)..range.end);
    let mut searched = above.chain(all.iter().cloned());
    searched.find_map(|range| lowest_free(range, taken))
}

fn lowest_free(range: Range<u32>, taken: &[VipIndex]) -> Option<VipIndex> {
    let start = taken.partition_point(|index| index.0 < range.start);
    let mut run = range.clone().zip(taken[start..].iter());
    let gap = run.find(|(want, have)| *want != have.0);
    let free = match gap {
        Some((want, _)) => want,
        None => range
            .start
            .checked_add(u32::try_from(taken.len() - start).ok()?)?,
    };
    (free < range.end).then_some(VipIndex(free))
}

#[cfg(test)]
mod tests;
