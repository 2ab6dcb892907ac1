//! The Bloom filter in front of the flow table. It is rebuilt periodically, because addresses cannot be removed from it.

use dormouse_ebpf::maps::{FLOW_FILTER_WORDS, flow_filter_bit};

use super::error::DatapathError;
use super::load::Loaded;
use dormouse_agent_sys::readers;
use dormouse_agent_sys::words::Words;

const WORDS: usize = FLOW_FILTER_WORDS as usize;
/// Index of the word that selects the filter that programs read.
const ASKED: usize = 2 * WORDS;

/// Both filters: one is read by programs, the other is rebuilt.
#[derive(Debug)]
pub(super) struct Flowing {
    words: Words,
}

/// The filter that is being rebuilt.
#[must_use = "programs do not read it before `finish`"]
pub(super) struct Renewal<'a> {
    words: &'a Words,
    filter: usize,
}

impl Flowing {
    pub(super) fn open(loaded: &Loaded) -> Result<Self, DatapathError> {
        let array = loaded.array("flow_filter")?;
        let words = Words::map(std::os::fd::AsFd::as_fd(array.fd()), ASKED + 1)
            .map_err(DatapathError::map("map the memory of", "flow_filter"))?;
        Ok(Self { words })
    }

    /// Clears the unused filter, and waits a grace period, until each flow that was only marked in it is in the table.
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
    /// Adds the source address of a flow.
    pub(super) fn mark(&self, address: &[u8; 16]) {
        let (word, bit) = flow_filter_bit(address);
        self.words.set(self.filter * WORDS + word as usize, bit);
    }

    /// Makes programs read the rebuilt filter, after all flows have been added.
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
        let (word, bit) = flow_filter_bit(address);
        let filter = usize::try_from(flowing.words.load(ASKED).unwrap()).unwrap();
        flowing.words.load(filter * WORDS + word as usize).unwrap() & bit != 0
    }

    #[test]
    fn a_removed_address_leaves_with_the_second_rebuild_and_present_ones_stay() {
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
    fn an_abandoned_rebuild_changes_nothing() {
        let flowing = flowing();
        let renewal = flowing.renew();
        renewal.mark(&[1; 16]);
        renewal.finish();
        drop(flowing.renew());
        assert!(asks(&flowing, &[1; 16]));
    }
}
