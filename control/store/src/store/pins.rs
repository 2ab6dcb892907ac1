//! Pinned revisions: those of reads in several slices, whose versions a compaction must not free.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::keyspace::Revision;

/// The pinned revisions, each with the number of its reads.
#[derive(Debug, Default)]
pub(super) struct Pins {
    reads: Mutex<BTreeMap<Revision, usize>>,
    /// Notified when a pin ends: there may be more to free.
    released: Notify,
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
        *self.reads.lock().entry(revision).or_default() += 1;
        Pin {
            pins: self,
            revision,
        }
    }

    /// The oldest pinned revision.
    pub(super) fn oldest(&self) -> Option<Revision> {
        let reads = self.reads.lock();
        reads.first_key_value().map(|(revision, _)| *revision)
    }

    /// Returns when a pin has ended since the last return. Cancel safe.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut reads = self.pins.reads.lock();
        if let Some(count) = reads.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                reads.remove(&self.revision);
            }
        }
        drop(reads);
        self.pins.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revision_stays_pinned_until_its_last_read_ends() {
        let pins = Pins::default();
        let (first, second, other) = (pins.pin(5), pins.pin(5), pins.pin(7));
        assert_eq!(pins.oldest(), Some(5));
        drop(first);
        assert_eq!(pins.oldest(), Some(5));
        drop(second);
        assert_eq!(pins.oldest(), Some(7));
        drop(other);
        assert_eq!(pins.oldest(), None);
    }
}
