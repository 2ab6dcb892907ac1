//! The ordered log of changes: at once the history that watches read and the list of what a
//! compaction has to look at.

use std::{collections::VecDeque, sync::Arc};

use super::{KeyRange, Revision, weight};
use crate::proto::mvccpb::KeyValue;

/// Compacted changes that stay readable for watches that kept up, so that a compaction right after
/// a write does not cancel them.
const COMPACTED_EVENTS_MAX: usize = 8_192;

/// Changes looked at for one page, so that a reader never holds the lock for long.
const SCANNED_EVENTS_MAX: usize = 65_536;

/// A change of one key.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision that made the change.
    pub revision: Revision,
    /// Whether the key was deleted; then `kv` has the key and the revision only.
    pub deleted: bool,
    /// The key after the change.
    pub kv: Arc<KeyValue>,
    /// The key before the change, if it existed.
    pub prev: Option<Arc<KeyValue>>,
}

/// How much a page may hold. At least one revision is always in it, whole.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Changes after which no further revision is begun.
    pub events: usize,
    /// Bytes of keys and values after which no further revision is begun.
    pub bytes: u64,
}

/// A piece of history.
#[derive(Debug)]
pub struct Page {
    /// Changes inside the range that was asked for.
    pub events: Vec<Event>,
    /// Where to read on; above `current` when all was read.
    pub next: Revision,
    /// The store's revision at the time of reading.
    pub current: Revision,
}

/// Changes since a little before the last compaction, in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    forgotten: Revision,
}

impl Log {
    pub(super) fn extend(&mut self, events: &[Event]) {
        self.events.extend(events.iter().cloned());
    }

    /// The newest revision of which changes are no longer here.
    pub(super) fn forgotten(&self) -> Revision {
        self.forgotten
    }

    fn position_after(&self, revision: Revision) -> usize {
        self.events
            .partition_point(|event| event.revision <= revision)
    }

    /// Changes above the first and up to the second revision.
    pub(super) fn between(&self, above: Revision, upto: Revision) -> impl Iterator<Item = &Event> {
        self.events
            .range(self.position_after(above)..self.position_after(upto))
    }

    /// Forgets what is below the compacted revision, but for the last few.
    pub(super) fn compact(&mut self, revision: Revision) {
        let below = self.position_after(revision - 1);
        let Some(mut gone) = below.checked_sub(COMPACTED_EVENTS_MAX) else {
            return;
        };
        if let Some(last) = gone.checked_sub(1) {
            self.forgotten = self.events[last].revision;
            gone = self.position_after(self.forgotten);
        }
        self.events.drain(..gone);
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
