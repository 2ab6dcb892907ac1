//! A set of positions in the order of nodes.

use std::ops::Range;

/// Positions of a word.
const WORD: usize = 64;

/// A set of positions.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    words: Vec<u64>,
}

impl Positions {
    /// No position of an order of so many nodes.
    pub(crate) fn none(nodes_len: usize) -> Self {
        Self {
            words: vec![0; nodes_len.div_ceil(WORD)],
        }
    }

    pub(crate) fn insert(&mut self, position: usize) {
        self.words[position / WORD] |= 1 << (position % WORD);
    }

    /// Adds a position, or removes it.
    pub(crate) fn set(&mut self, position: usize, is_in: bool) {
        let bit = 1 << (position % WORD);
        let word = &mut self.words[position / WORD];
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// All positions in the set, from the one of an index on, all around; the index is taken modulo their number.
    pub(crate) fn around(&self, index: usize) -> impl Iterator<Item = usize> {
        let ones = |word: &u64| usize::try_from(word.count_ones()).unwrap_or(WORD);
        let len: usize = self.words.iter().map(ones).sum();
        let mut left = index % len.max(1);
        let word = self.words.iter().position(|word| {
            let is_here = left < ones(word);
            left -= if is_here { 0 } else { ones(word) };
            is_here
        });
        let (first, end) = (word.unwrap_or(0) * WORD, self.words.len() * WORD);
        let after = self.within(first..end).skip(left);
        after.chain(self.within(0..end).take(index % len.max(1)))
    }

    pub(crate) fn contains(&self, position: usize) -> bool {
        (self.words[position / WORD] >> (position % WORD)) & 1 == 1
    }

    /// The first position of each word within a range, with the bits of those within that are in the set, or are not.
    fn bits(&self, range: Range<usize>, is_in: bool) -> impl Iterator<Item = (usize, u64)> {
        let words = range.start / WORD..range.end.div_ceil(WORD);
        words.map(move |word| {
            let first = word * WORD;
            let from = u64::MAX << range.start.saturating_sub(first);
            let past = (first + WORD).saturating_sub(range.end);
            let inside = from & (u64::MAX >> past);
            let bits = self.words[word];
            (first, inside & if is_in { bits } else { !bits })
        })
    }

    /// The positions within a range that are in the set.
    pub(crate) fn within(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        self.bits(range, true).flat_map(|(first, mut bits)| {
            std::iter::from_fn(move || {
                let bit = usize::try_from(bits.trailing_zeros()).unwrap_or(WORD);
                bits &= bits.wrapping_sub(1);
                (bit < WORD).then_some(first + bit)
            })
        })
    }

    /// The number of positions of a range up to the one out of the set that is one too many, and of those out of the set.
    pub(crate) fn up_to(&self, range: Range<usize>, wanted: u64) -> (usize, u64) {
        let mut out = 0;
        for (first, mut bits) in self.bits(range.clone(), false) {
            let len = u64::from(bits.count_ones());
            if out + len > wanted {
                (out..wanted).for_each(|_| bits &= bits - 1);
                let bit = usize::try_from(bits.trailing_zeros()).unwrap_or(WORD);
                return (first + bit - range.start, wanted);
            }
            out += len;
        }
        (range.len(), out)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn ranges_are_as_if_each_position_was_looked_at() {
        let mut rng = Rng::with_seed(5);
        for _ in 0..2_000 {
            let len = rng.usize(1..300);
            let mut set = Positions::none(len);
            (0..rng.usize(0..len * 2)).for_each(|_| set.insert(rng.usize(0..len)));
            let start = rng.usize(0..len);
            let range = start..rng.usize(start..=len);
            let is_in = |position: &usize| set.contains(*position);
            let within: Vec<usize> = range.clone().filter(is_in).collect();
            assert_eq!(set.within(range.clone()).collect::<Vec<_>>(), within);
            let wanted = rng.usize(0..100);
            let mut out = range.clone().filter(|position| !is_in(position));
            let end = out.nth(wanted);
            let judged = end.unwrap_or(range.end) - range.start;
            let found = (range.len() - within.len()).min(wanted);
            let found = u64::try_from(found).unwrap();
            let wanted = u64::try_from(wanted).unwrap();
            assert_eq!(set.up_to(range, wanted), (judged, found));
        }
    }
}
