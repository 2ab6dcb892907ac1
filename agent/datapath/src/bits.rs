//! A bit set with a search for aligned runs of absent numbers.

use fixedbitset::FixedBitSet;

/// A set of numbers `0..len`.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    set: FixedBitSet,
    len: u32,
}

impl Bits {
    /// The empty set.
    pub(super) fn none(len: u32) -> Self {
        Self {
            set: FixedBitSet::with_capacity(len as usize),
            len,
        }
    }

    /// Inserts a number. Returns whether it was absent; false past the end.
    pub(super) fn put(&mut self, number: u32) -> bool {
        number < self.len && !self.set.put(number as usize)
    }

    /// Removes a number. Returns whether it was present.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let present = self.has(number);
        if present {
            self.set.remove(number as usize);
        }
        present
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.set.contains(number as usize)
    }

    /// The numbers in the set, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        // Numbers are below `len`.
        self.set
            .ones()
            .filter_map(|number| u32::try_from(number).ok())
    }

    /// The first number from `from` on (wrapping around) that starts `run` absent numbers; a multiple of `run`, which is a power
    /// of two.
    pub(super) fn gap(&self, from: u32, run: u32) -> Option<u32> {
        let from = from & !(run - 1);
        self.gap_in(from, self.len, run)
            .or_else(|| self.gap_in(0, from, run))
    }

    fn gap_in(&self, from: u32, end: u32, run: u32) -> Option<u32> {
        let mut at = from;
        while at + run <= end {
            if at.is_multiple_of(usize::BITS) && self.word(at) == Some(usize::MAX) {
                at += run.max(usize::BITS);
            } else if self.is_gap(at, run) {
                return Some(at);
            } else {
                at += run;
            }
        }
        None
    }

    fn is_gap(&self, at: u32, run: u32) -> bool {
        if run >= usize::BITS {
            let mut words = (at..at + run).step_by(usize::BITS as usize);
            return words.all(|at| self.word(at) == Some(0));
        }
        let mask = ((1 << run) - 1) << (at % usize::BITS);
        self.word(at).is_some_and(|word| word & mask == 0)
    }

    /// The word that contains the bit of a number.
    fn word(&self, number: u32) -> Option<usize> {
        let words = self.set.as_slice();
        words.get((number / usize::BITS) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_with_wrap_around_and_only_where_all_bits_are_free() {
        let mut bits = Bits::none(200);
        for number in 0..130 {
            assert!(bits.put(number));
        }
        assert!(!bits.put(7));
        assert_eq!(bits.gap(0, 1), Some(130));
        assert_eq!(bits.gap(0, 4), Some(132));
        assert_eq!(bits.gap(0, 64), None, "192 to 255 go past the end");
        assert!(bits.take(70) && !bits.take(70));
        for number in 130..200 {
            bits.put(number);
        }
        assert_eq!(bits.gap(100, 1), Some(70));
        assert_eq!(bits.gap(100, 2), None);
        assert_eq!(bits.iter().count(), 199);
    }
}
