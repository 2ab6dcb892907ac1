//! The Bloom filter in front of the flow table. It is rebuilt periodically, because addresses cannot be removed from it.

use dormouse_agent_sys::readers;
use dormouse_agent_sys::words::Words;
use dormouse_ebpf::maps::{FLOW_FILTER_WORDS, flow_filter_bit};

use super::error::DatapathError;
use super::load::Loaded;

const WORDS: usize = FLOW_FILTER_WORDS as usize;
/// Index of the word that selects the filter that programs read.
const ACTIVE: usize = 2 * WORDS;

/// Both filters: one is read by programs, the other is rebuilt.
#[derive(Debug)]
pub(super) struct FlowFilter {
    words: Words,
}

/// The filter that is being rebuilt.
#[must_use = "programs do not read it before `finish`"]
pub(super) struct Rebuild<'a> {
    words: &'a Words,
    filter: usize,
}

impl FlowFilter {
    pub(super) fn open(loaded: &Loaded) -> Result<Self, DatapathError> {
        let array = loaded.array("flow_filter")?;
        let words = Words::map(std::os::fd::AsFd::as_fd(array.fd()), ACTIVE + 1)
            .map_err(DatapathError::map("map the memory of", "flow_filter"))?;
        Ok(Self { words })
    }

    /// Clears the unused filter, and waits a grace period, until each flow that was only marked in it is in the table.
    pub(super) fn rebuild(&self) -> Rebuild<'_> {
        let filter = usize::from(self.words.load(ACTIVE) == Some(0));
        for place in filter * WORDS..(filter + 1) * WORDS {
            self.words.store(place, 0);
        }
        readers::wait_for_readers();
        Rebuild {
            words: &self.words,
            filter,
        }
    }
}

impl Rebuild<'_> {
    /// Adds the source address of a flow.
    pub(super) fn mark(&self, address: &[u8; 16]) {
        let (word, bit) = flow_filter_bit(address);
        self.words.set(self.filter * WORDS + word as usize, bit);
    }

    /// Makes programs read the rebuilt filter, after all flows have been added.
    pub(super) fn finish(self) {
        self.words.store(ACTIVE, self.filter as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter() -> FlowFilter {
        FlowFilter {
            words: crate::arrays::anonymous(ACTIVE + 1).unwrap(),
        }
    }

    fn contains(filter: &FlowFilter, address: &[u8; 16]) -> bool {
        let (word, bit) = flow_filter_bit(address);
        let active = usize::try_from(filter.words.load(ACTIVE).unwrap()).unwrap();
        filter.words.load(active * WORDS + word as usize).unwrap() & bit != 0
    }

    #[test]
    fn a_removed_address_leaves_with_the_second_rebuild_and_present_ones_stay() {
        let filter = filter();
        let (there, gone) = ([1; 16], [2; 16]);
        for marked in [&[there, gone][..], &[there]] {
            let rebuild = filter.rebuild();
            for address in marked {
                rebuild.mark(address);
            }
            rebuild.finish();
            assert!(contains(&filter, &there));
            assert_eq!(contains(&filter, &gone), marked.contains(&gone));
        }
    }

    #[test]
    fn an_abandoned_rebuild_changes_nothing() {
        let filter = filter();
        let rebuild = filter.rebuild();
        rebuild.mark(&[1; 16]);
        rebuild.finish();
        drop(filter.rebuild());
        assert!(contains(&filter, &[1; 16]));
    }
}
