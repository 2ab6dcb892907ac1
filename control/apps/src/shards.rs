//! The shard of each VIP.

/// The fewest shards: also a machine with one core has two, so that the same code runs everywhere.
const SHARDS_MIN: usize = 2;
/// The most shards: one decides for thousands of awake apps, and each has its own timer while it has any.
const SHARDS_MAX: usize = 16;
/// The golden ratio's fraction of 2^32: its multiples are spread evenly, however few.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// The number of shards; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shards(usize);

impl Shards {
    /// As many as the process has cores, within bounds.
    pub(crate) fn of_machine() -> Self {
        let cores = std::thread::available_parallelism().map_or(SHARDS_MIN, usize::from);
        Self::new(cores.clamp(SHARDS_MIN, SHARDS_MAX))
    }

    /// This many.
    pub(crate) fn new(count: usize) -> Self {
        Self(count.max(1))
    }

    /// The number of shards.
    pub(crate) fn count(self) -> usize {
        self.0
    }

    /// The shard of a VIP. VIPs are handed out in sequence and slices of the second are their remainders, so the VIP is
    /// mixed first: a shard's apps are spread over all slices.
    pub(crate) fn of(self, vip: u32) -> usize {
        let mixed = u64::from(vip.wrapping_mul(GOLDEN_RATIO));
        usize::try_from((mixed * self.0 as u64) >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::{SLICES, slice_of};

    #[test]
    fn a_sequence_of_vips_is_spread_evenly_over_shards_and_their_slices() {
        for count in [2, 3, 4, 8, 16] {
            let shards = Shards::new(count);
            let mut sizes = vec![[0_usize; SLICES]; count];
            let apps = 1_000 * count * SLICES;
            for vip in 16..16 + u32::try_from(apps).unwrap() {
                sizes[shards.of(vip)][slice_of(vip)] += 1;
            }
            let (least, most) = (900, 1_100);
            let even = |size: &usize| (least..most).contains(size);
            assert!(sizes.iter().flatten().all(even), "{count}: {sizes:?}");
        }
    }
}
