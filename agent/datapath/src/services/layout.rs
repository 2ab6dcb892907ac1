//! The placement of service ranges: each cluster IP of a placed range has a direct slot; pure.

use std::net::IpAddr;

use dormouse_agent_services::Prefix;
use dormouse_ebpf::config::{Net, Range, SERVICE_RANGES_MAX};
use dormouse_ebpf::service::{SLOTS_MAX, VIPS_MAX};

use crate::arrays::octets;

/// First index of the search for other slots: ranges are placed below it.
pub(super) const DYNAMIC_FROM: u32 = VIPS_MAX + (SLOTS_MAX - VIPS_MAX) / 2;

/// Largest range, as a power of two, that is placed beyond the apps' slots.
const SMALL_BITS: u32 = (DYNAMIC_FROM - VIPS_MAX).ilog2();

/// Smallest number of slots, as a power of two, that is worth a range.
const LEAST_BITS: u32 = 4;

/// Places the service ranges. A placed range stays; `free`: whether slots beyond the apps' are available; `low`: the first index
/// that may be used below.
pub(super) fn place(
    wanted: &[Prefix],
    before: &[Range],
    low: u32,
    free: impl Fn(u32, u32) -> bool,
) -> Vec<Range> {
    let mut placed: Vec<Range> = Vec::new();
    for prefix in wanted.iter().take(SERVICE_RANGES_MAX) {
        let bits = free_bits(prefix);
        let old = before
            .iter()
            .find(|old| old.prefix == octets(prefix.address()));
        let old =
            old.filter(|old| len_bits(old) <= bits && (old.base >= VIPS_MAX || old.base >= low));
        let range = old.copied().or_else(|| {
            let small = (bits <= SMALL_BITS).then(|| beyond(prefix, bits, &placed, before));
            let small = small.flatten().filter(|range| free(range.base, end(range)));
            small.or_else(|| below(prefix, bits, low, &placed))
        });
        placed.extend(range);
    }
    placed
}

/// Beyond the apps' slots, from their end upwards.
fn beyond(prefix: &Prefix, bits: u32, placed: &[Range], before: &[Range]) -> Option<Range> {
    let ends = placed
        .iter()
        .chain(before)
        .filter(|range| range.base >= VIPS_MAX)
        .map(end);
    let base = ends.max().unwrap_or(VIPS_MAX);
    (base + (1 << bits) <= DYNAMIC_FROM).then(|| range(prefix, bits, base))
}

/// At the upper end of the apps' slots, downwards: as much of the range as there is room for.
fn below(prefix: &Prefix, bits: u32, low: u32, placed: &[Range]) -> Option<Range> {
    let bases = placed.iter().map(|range| range.base);
    let top = bases
        .filter(|base| *base < VIPS_MAX)
        .min()
        .unwrap_or(VIPS_MAX);
    let bits = bits.min(top.checked_sub(low)?.checked_ilog2()?);
    (bits >= LEAST_BITS).then(|| range(prefix, bits, top - (1 << bits)))
}

fn range(prefix: &Prefix, bits: u32, base: u32) -> Range {
    Range {
        prefix: octets(prefix.address()),
        mask: u32::MAX.checked_shl(bits).unwrap_or(0),
        base,
    }
}

/// The number of host bits of a range.
fn free_bits(prefix: &Prefix) -> u32 {
    let all = if prefix.address().is_ipv4() { 32 } else { 128 };
    all - u32::from(prefix.length())
}

fn len_bits(range: &Range) -> u32 {
    range.mask.trailing_zeros()
}

/// The index after the last slot of a range.
pub(crate) fn end(range: &Range) -> u32 {
    range.base + (1 << len_bits(range))
}

/// The address of a slot in a range.
pub(super) fn address(range: &Range, slot: u32) -> IpAddr {
    let mut address = range.prefix;
    let [.., a, b, c, d] = address;
    let low = u32::from_be_bytes([a, b, c, d]) | (slot - range.base);
    address[12..].copy_from_slice(&low.to_be_bytes());
    super::frontends::address(address)
}

/// A range in the layout of the configuration.
pub(crate) fn net(prefix: &Prefix) -> Net {
    let mapped = if prefix.address().is_ipv4() { 96 } else { 0 };
    let free = 128 - mapped - u32::from(prefix.length());
    Net {
        prefix: octets(prefix.address()),
        mask: u128::MAX.checked_shl(free).unwrap_or(0).to_be_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        let read = texts.iter().map(|text| Prefix::parse(text).unwrap());
        read.collect()
    }

    fn bases(texts: &[&str], low: u32) -> Vec<(u32, u32)> {
        let placed = place(&prefixes(texts), &[], low, |_, _| true);
        placed
            .iter()
            .map(|range| (range.base, end(range) - range.base))
            .collect()
    }

    #[test]
    fn small_ranges_are_placed_beyond_the_apps_and_large_ones_at_their_end() {
        assert_eq!(bases(&["fd00::/112"], VIPS_MAX), [(VIPS_MAX, 65_536)]);
        assert_eq!(
            bases(&["10.0.0.0/24", "fd00::/120", "10.96.0.0/12"], 1 << 19),
            [(VIPS_MAX, 256), (VIPS_MAX + 256, 256), (1 << 19, 1 << 19)]
        );
        assert_eq!(bases(&["10.96.0.0/12"], VIPS_MAX), []);
        assert_eq!(bases(&["fd00::/64"], 0), [(0, 1 << 20)]);
        assert_eq!(
            bases(&["fd00::/112", "10.0.0.0/16"], 0),
            [(VIPS_MAX, 65_536), (VIPS_MAX - 65_536, 65_536)]
        );
    }

    #[test]
    fn a_range_stays_where_it_is() {
        let wanted = prefixes(&["10.0.0.0/24", "10.0.1.0/24"]);
        let before = place(&wanted, &[], 0, |_, _| true);
        let turned = [wanted[1], wanted[0]];
        let after = place(&turned, &before, 0, |_, _| true);
        assert_eq!(after, [before[1], before[0]]);
        assert_eq!(
            address(&after[0], after[0].base + 7).to_string(),
            "10.0.1.7"
        );
    }
}
