//! Notification of watch streams: each is notified of the watchers that have events to read. No
//! events are queued: a stream reads them from the event log at its own pace, so a slow stream
//! delays no write and no other stream.
//!
//! A watcher is *armed* while it has no events to read. [`Watchers::mark`] marks the armed watchers
//! of a new event as ready and disarms them; [`Watchers::take`] arms them again, before the stream
//! reads. So a watcher costs a write nothing while its stream has not read.

mod index;
mod ranges;
mod ready;
mod recent;

use std::{collections::BTreeMap, sync::Arc};

use crate::keyspace::{KeyRange, LogCursor, Revision};
use index::Index;
pub use ready::{ReadySet, Wakes};
pub(crate) use recent::{Recent, RecentRead};

/// ID of a watcher, unique within its stream.
pub type WatchId = i64;

/// Bytes that a watcher takes besides its keys: its entries in the index and in its stream.
const WATCHER_BYTES: u64 = 512;

/// The registration of one watcher of one stream.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The ready set of the watcher's stream.
    pub ready_set: Arc<ReadySet>,
    /// The watcher within the stream.
    pub id: WatchId,
    /// The watched keys.
    pub range: KeyRange,
    /// The watcher gets no events below this revision.
    pub start: Revision,
}

impl Registration {
    fn bytes(&self) -> u64 {
        WATCHER_BYTES + self.range.bytes()
    }
}

/// All watchers, and the revision up to which they are notified.
#[derive(Debug, Default)]
pub struct Watchers {
    index: Index,
    published: Revision,
    /// The position in the log behind the published events, while there are watchers.
    cursor: Option<LogCursor>,
    bytes: u64,
}

impl Watchers {
    /// Number of watchers.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no watcher.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated bytes of all watchers.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The revision up to which the watchers are notified.
    pub fn published(&self) -> Revision {
        self.published
    }

    /// Registers a watcher. It is marked at once if it starts at a published revision.
    pub fn register(&mut self, registration: &Registration) {
        self.bytes += registration.bytes();
        let behind = registration.start <= self.published;
        self.index.add(registration, !behind);
        if behind {
            registration
                .ready_set
                .mark(registration.id, registration.start);
        }
    }

    /// Removes a registered watcher, and its mark.
    pub fn unregister(&mut self, registration: &Registration) {
        self.bytes -= registration.bytes();
        self.index.remove(registration);
        registration.ready_set.unmark(registration.id);
        if self.is_empty() {
            // Without watchers no events are read: the position would be outdated.
            self.cursor = None;
        }
    }

    /// Marks the watchers of the next event; returns whether there are any.
    pub fn mark(&mut self, key: &[u8], revision: Revision, wakes: &mut Wakes) -> bool {
        self.index.mark(key, revision, wakes)
    }

    /// The position in the log behind the published events, if it is known.
    pub(crate) fn cursor(&self) -> Option<LogCursor> {
        self.cursor
    }

    /// The watchers are notified of the events up to this position.
    pub(crate) fn set_cursor(&mut self, cursor: LogCursor) {
        self.cursor = Some(cursor);
    }

    /// The watchers are notified of all events up to this revision.
    pub fn set_published(&mut self, upto: Revision) {
        self.published = self.published.max(upto);
    }

    /// Takes the marked watchers of a stream, each with the first revision to read, and arms them:
    /// an event that is published after this marks them again.
    pub fn take<'a>(
        &mut self,
        ready_set: &ReadySet,
        registration: impl Fn(WatchId) -> Option<&'a Registration>,
    ) -> BTreeMap<WatchId, Revision> {
        let marked = ready_set.take();
        for &id in marked.keys() {
            if let Some(registration) = registration(id) {
                self.index.arm(registration);
            }
        }
        marked
    }

    /// The published revision, if the stream has taken all marks up to it.
    pub fn progress(&self, ready_set: &ReadySet) -> Option<Revision> {
        ready_set.is_empty().then_some(self.published)
    }
}

#[cfg(test)]
mod tests;
