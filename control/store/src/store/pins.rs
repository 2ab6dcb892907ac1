//! Pinned revisions: those of reads in several slices, whose versions a compaction must not free.

use std::{collections::BTreeMap, mem};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::keyspace::Revision;

/// The pinned revisions.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pinned: Mutex<Pinned>,
    /// Notified when a pin ends that a compaction waits for.
    released: Notify,
}

#[derive(Debug, Default)]
struct Pinned {
    /// Each revision with the number of its reads.
    reads: BTreeMap<Revision, usize>,
    /// Whether a compaction left something for one of them.
    awaited: bool,
}

/// Keeps a revision readable until it is dropped.
#[derive(Debug)]
pub(super) struct Pin<'a> {
    pins: &'a Pins,
    revision: Revision,
}

impl Pins {
    /// Pins a revision; the caller holds the lock of the state in which it is readable.
    pub(super) fn pin(&self, revision: Revision) -> Pin<'_> {
        let mut pinned = self.pinned.lock();
        *pinned.reads.entry(revision).or_default() += 1;
        Pin {
            pins: self,
            revision,
        }
    }

    /// The oldest pinned revision, if a compaction has to leave what it needs: [`Pins::released`]
    /// then returns when a pin ends.
    pub(super) fn below(&self, compacted: Revision) -> Option<Revision> {
        let mut pinned = self.pinned.lock();
        let (&oldest, _) = pinned.reads.first_key_value()?;
        if oldest >= compacted {
            return None;
        }
        pinned.awaited = true;
        Some(oldest)
    }

    /// Returns when a pin has ended after [`Pins::below`] found one. Cancel safe.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pinned = self.pins.pinned.lock();
        let Some(count) = pinned.reads.get_mut(&self.revision) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        pinned.reads.remove(&self.revision);
        // Most reads end while no compaction waits, and wake no task.
        if mem::take(&mut pinned.awaited) {
            drop(pinned);
            self.pins.released.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revision_stays_pinned_until_its_last_read_ends() {
        let pins = Pins::default();
        let (first, second, other) = (pins.pin(5), pins.pin(5), pins.pin(7));
        assert_eq!(pins.below(10), Some(5));
        drop(first);
        assert_eq!(pins.below(10), Some(5));
        drop(second);
        assert_eq!(pins.below(10), Some(7));
        drop(other);
        assert_eq!(pins.below(10), None);
    }

    #[tokio::test]
    async fn only_the_end_of_a_pin_below_the_compacted_revision_is_awaited() {
        let pins = Pins::default();
        let mut released = std::pin::pin!(pins.released());
        let pin = pins.pin(5);
        assert_eq!(pins.below(5), None);
        drop(pin);
        assert!(futures::poll!(&mut released).is_pending());
        let pin = pins.pin(5);
        assert_eq!(pins.below(6), Some(5));
        drop(pin);
        assert!(futures::poll!(&mut released).is_ready());
    }
}
