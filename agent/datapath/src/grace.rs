//! Grace periods, after which replaced words are no longer in use by programs; two counters order releases and periods.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use dormouse_agent_sys::readers;

/// The grace periods of a data path. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Graces {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    over: AtomicU64,
}

/// A point in time between grace periods. What is released now may be reused when a period that begins later is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Number of periods begun.
    pub(super) begun: u64,
    /// The newest period that is over.
    pub(super) over: u64,
}

/// A grace period that has begun; it is over when [`Grace::wait`] returns. Needs no access to the data path.
#[derive(Debug)]
#[must_use = "a grace period is over only after its wait"]
pub struct Grace {
    counters: Arc<Counters>,
    number: u64,
}

impl Graces {
    /// Begins a period: it covers all stores before.
    pub(super) fn begin(&self) -> Grace {
        let number = self.counters.begun.fetch_add(1, Ordering::AcqRel) + 1;
        // A thread that read an earlier number has replaced the word before it releases it.
        fence(Ordering::SeqCst);
        Grace {
            counters: Arc::clone(&self.counters),
            number,
        }
    }

    /// The current point, for the release of something that this thread has just replaced: periods that begin later cover that
    /// store.
    pub(super) fn now(&self) -> Moment {
        fence(Ordering::SeqCst);
        Moment {
            begun: self.counters.begun.load(Ordering::Acquire),
            over: self.counters.over.load(Ordering::Acquire),
        }
    }
}

#[cfg(test)]
impl Graces {
    /// A whole period, without waiting for readers.
    pub(super) fn pass(&self) {
        let period = self.begin();
        self.counters
            .over
            .fetch_max(period.number, Ordering::AcqRel);
    }
}

impl Grace {
    /// Blocks for about 10 ms, until no program uses a word that was replaced before the period began.
    pub fn wait(self) {
        readers::wait_for_readers();
        self.counters.over.fetch_max(self.number, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_during_a_period_is_not_covered_by_it() {
        let graces = Graces::default();
        let period = graces.begin();
        let given_back = graces.now().begun;
        period.wait();
        assert!(given_back >= graces.now().over, "it stays in quarantine");
        graces.begin().wait();
        assert!(given_back < graces.now().over);
    }
}
