//! A bit set.

/// A set of numbers `0..len`.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: u32,
}

impl Bits {
    /// The empty set.
    pub(super) fn none(len: u32) -> Self {
        Self {
            words: vec![0; len.div_ceil(64) as usize],
            len,
        }
    }

    /// Inserts a number. Returns whether it was absent.
    pub(super) fn put(&mut self, number: u32) -> bool {
        let (place, bit) = place(number);
        match self.words.get_mut(place) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    /// Removes a number. Returns whether it was present.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let (place, bit) = place(number);
        match self.words.get_mut(place) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                true
            }
            _ => false,
        }
    }

    pub(super) fn has(&self, number: u32) -> bool {
        let (place, bit) = place(number);
        self.words.get(place).is_some_and(|word| word & bit != 0)
    }

    /// The numbers in the set.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len).filter(|number| self.has(*number))
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
            if at.is_multiple_of(64) && self.words.get(at as usize / 64) == Some(&u64::MAX) {
                at += run.max(64);
            } else if self.is_gap(at, run) {
                return Some(at);
            } else {
                at += run;
            }
        }
        None
    }

    fn is_gap(&self, at: u32, run: u32) -> bool {
        let first = at as usize / 64;
        if run >= 64 {
            let words = self.words.get(first..first + run as usize / 64);
            return words.is_some_and(|words| words.iter().all(|word| *word == 0));
        }
        let mask = ((1 << run) - 1) << (at % 64);
        self.words.get(first).is_some_and(|word| word & mask == 0)
    }
}

fn place(number: u32) -> (usize, u64) {
    (number as usize / 64, 1 << (number % 64))
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
