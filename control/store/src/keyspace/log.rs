//! The event log, in the order of revisions: watchers read their history from it, and compaction
//! reads from it which keys to compact.

use std::{collections::VecDeque, sync::Arc};

use super::{KeyRange, Revision, weight};
use crate::proto::mvccpb::KeyValue;

/// Compacted events that stay readable for synced watchers, so that a compaction right after a
/// write does not cancel them.
const COMPACTED_EVENTS_MAX: usize = 8_192;

/// Events that one page scans at most; bounds the time for which a reader holds the lock.
const SCANNED_EVENTS_MAX: usize = 65_536;

/// A put or a deletion of one key.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision that wrote it.
    pub revision: Revision,
    /// Whether the key was deleted; then `kv` has only the key and the revision.
    pub deleted: bool,
    /// The key after the event.
    pub kv: Arc<KeyValue>,
    /// The key before the event, if it existed.
    pub prev: Option<Arc<KeyValue>>,
}

/// Limits of a page. A page always holds at least one whole revision.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// A page with this many events takes no further revision.
    pub events: usize,
    /// A page with this many bytes of keys and values takes no further revision.
    pub bytes: u64,
}

/// A page of the event history.
#[derive(Debug)]
pub struct Page {
    /// Events inside the requested range.
    pub events: Vec<Event>,
    /// The first revision of the next page; above `current` when there is none.
    pub next: Revision,
    /// The store's revision when the page was read.
    pub current: Revision,
}

/// Events in order, from at most [`COMPACTED_EVENTS_MAX`] below the compacted revision.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    dropped: Revision,
}

impl Log {
    pub(super) fn extend(&mut self, events: &[Event]) {
        self.events.extend(events.iter().cloned());
    }

    /// The newest revision whose events are dropped.
    pub(super) fn dropped(&self) -> Revision {
        self.dropped
    }

    fn position_after(&self, revision: Revision) -> usize {
        self.events
            .partition_point(|event| event.revision <= revision)
    }

    /// Events of the revisions above `above`, up to and including `upto`.
    pub(super) fn between(&self, above: Revision, upto: Revision) -> impl Iterator<Item = &Event> {
        self.events
            .range(self.position_after(above)..self.position_after(upto))
    }

    /// Drops the events below the compacted revision, except the last [`COMPACTED_EVENTS_MAX`].
    pub(super) fn compact(&mut self, revision: Revision) {
        let below = self.position_after(revision - 1);
        let Some(mut drained) = below.checked_sub(COMPACTED_EVENTS_MAX) else {
            return;
        };
        if let Some(last) = drained.checked_sub(1) {
            self.dropped = self.events[last].revision;
            drained = self.position_after(self.dropped);
        }
        self.events.drain(..drained);
    }

    pub(super) fn page(
        &self,
        range: &KeyRange,
        from: Revision,
        current: Revision,
        limits: PageLimits,
    ) -> Page {
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0;
        let mut last = from - 1;
        let start = self.position_after(from - 1);
        for (scanned, event) in self.events.range(start..).enumerate() {
            let full = events.len() >= limits.events
                || bytes >= limits.bytes
                || scanned >= SCANNED_EVENTS_MAX;
            if full && event.revision > last {
                return Page {
                    events,
                    next: last + 1,
                    current,
                };
            }
            last = event.revision;
            if range.contains(&event.kv.key) {
                bytes += weight(&event.kv) + event.prev.as_deref().map_or(0, weight);
                events.push(event.clone());
            }
        }
        Page {
            events,
            next: current.max(from - 1) + 1,
            current,
        }
    }
}
