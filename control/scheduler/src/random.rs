//! Numbers that draw lots between equals; the seed makes a run repeatable.

/// SplitMix64: small, fast and even enough to draw lots.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which is not 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of a `usize` is one"
    )]
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % (end.max(1) as u64)) as usize
    }
}
