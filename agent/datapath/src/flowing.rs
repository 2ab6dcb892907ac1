//! The filter before the flow table, made anew now and then: an address whose flows are gone would stay in it for ever.

use dormouse_ebpf::maps::{FLOWING_WORDS, flowing_bit};

use super::error::DatapathError;
use super::load::Loaded;
use dormouse_agent_sys::readers;
use dormouse_agent_sys::words::Words;

const WORDS: usize = FLOWING_WORDS as usize;
/// The word that says which of the two filters programs ask.
const ASKED: usize = 2 * WORDS;

/// Both filters.
#[derive(Debug)]
pub(super) struct Flowing {
    words: Words,
}

/// The filter that is not asked, on its way to be.
#[must_use = "nothing is asked of it before its end"]
pub(super) struct Renewal<'a> {
    words: &'a Words,
    filter: usize,
}

impl Flowing {
    pub(super) fn open(loaded: &Loaded) -> Result<Self, DatapathError> {
        let array = loaded.array("flowing")?;
        let words = Words::map(std::os::fd::AsFd::as_fd(array.fd()), ASKED + 1)
            .map_err(DatapathError::map("map the memory of", "flowing"))?;
        Ok(Self { words })
    }

    /// Empties the filter that is not asked, and waits until each flow whose mark that took is in the table.
    pub(super) fn renew(&self) -> Renewal<'_> {
        let filter = usize::from(self.words.load(ASKED) == Some(0));
        for place in filter * WORDS..(filter + 1) * WORDS {
            self.words.store(place, 0);
        }
        readers::wait_for_readers();
        Renewal {
            words: &self.words,
            filter,
        }
    }
}

impl Renewal<'_> {
    /// Flows come from the address.
    pub(super) fn mark(&self, address: &[u8; 16]) {
        let (word, bit) = flowing_bit(address);
        self.words.set(self.filter * WORDS + word as usize, bit);
    }

    /// Has it asked, once all flows are marked.
    pub(super) fn finish(self) {
        self.words.store(ASKED, self.filter as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowing() -> Flowing {
        Flowing {
            words: crate::arrays::anonymous(ASKED + 1).unwrap(),
        }
    }

    fn asks(flowing: &Flowing, address: &[u8; 16]) -> bool {
        let (word, bit) = flowing_bit(address);
        let filter = usize::try_from(flowing.words.load(ASKED).unwrap()).unwrap();
        flowing.words.load(filter * WORDS + word as usize).unwrap() & bit != 0
    }

    #[test]
    fn what_is_gone_is_unmarked_by_the_second_renewal_and_what_is_there_stays() {
        let flowing = flowing();
        let (there, gone) = ([1; 16], [2; 16]);
        for marked in [&[there, gone][..], &[there]] {
            let renewal = flowing.renew();
            for address in marked {
                renewal.mark(address);
            }
            renewal.finish();
            assert!(asks(&flowing, &there));
            assert_eq!(asks(&flowing, &gone), marked.contains(&gone));
        }
    }

    #[test]
    fn a_renewal_that_is_given_up_changes_nothing() {
        let flowing = flowing();
        let renewal = flowing.renew();
        renewal.mark(&[1; 16]);
        renewal.finish();
        drop(flowing.renew());
        assert!(asks(&flowing, &[1; 16]));
    }
}
