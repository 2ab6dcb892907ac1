//! Events of the log: each with its key and versions, and pages of them for watchers.

use std::iter;

use super::{
    KeyRange, Keyspace, Revision, Version,
    log::{Entry, Position},
    records::Records,
};
use crate::{
    Error,
    wire::{self, EventParts, Fields, PageBuffer},
};

/// Events that one page scans at most; bounds the time for which a reader holds the lock.
const SCANNED_EVENTS_MAX: usize = 2_048;

/// A put or a deletion of one key, in the log.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    records: &'a Records,
    revision: Revision,
    version: Version<'a>,
}

impl<'a> Event<'a> {
    pub(super) fn new(records: &'a Records, entry: Entry) -> Self {
        Self {
            records,
            revision: entry.revision,
            version: records.version(entry.version),
        }
    }

    /// The revision that wrote it.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether the key was deleted.
    pub fn is_delete(&self) -> bool {
        self.version.is_tombstone()
    }

    /// Whether the key did not exist before the event.
    pub(super) fn is_create(&self) -> bool {
        self.version.fields().version == 1
    }

    /// The key.
    pub fn key(&self) -> &'a [u8] {
        self.records.key(self.version.cell())
    }

    /// The key's fields after the event, without the key; a deletion has only the revision.
    pub fn fields(&self) -> Fields<'a> {
        self.version.fields()
    }

    /// The encoded fields after the event, as they follow the key in a message.
    pub fn encoded(&self) -> &'a [u8] {
        self.version.encoded()
    }

    /// The parts of the event's message, with or without the key before it.
    pub(crate) fn parts(&self, with_prev: bool) -> EventParts<'a> {
        let prev = with_prev.then(|| self.before()).flatten();
        EventParts {
            deleted: self.is_delete(),
            key: self.key(),
            kv: self.encoded(),
            prev: prev.map(Version::encoded),
        }
    }

    /// The put that the event supersedes, unless it was compacted; it may be one of the same
    /// revision.
    pub(crate) fn superseded(&self) -> Option<Version<'a>> {
        let prev = self.records.version(self.version.prev()?);
        (!prev.is_tombstone()).then_some(prev)
    }

    /// The key before the revision of the event, unless it was compacted. A create has none.
    pub(crate) fn before(&self) -> Option<Version<'a>> {
        let mut version = self.version;
        if !self.is_delete() && self.is_create() {
            return None;
        }
        while version.revision() == self.revision {
            version = self.records.version(version.prev()?);
        }
        (!version.is_tombstone()).then_some(version)
    }
}

/// A position in the log, from which a reader continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCursor(Position);

/// Limits of a page. A page always holds at least one whole revision.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// A page with this many events takes no further revision.
    pub events: usize,
    /// A page with this many bytes of encoded events takes no further revision.
    pub bytes: u64,
}

/// A read of the event history.
#[derive(Clone, Copy, Debug)]
pub struct EventQuery<'a> {
    /// The wanted keys.
    pub range: &'a KeyRange,
    /// The first wanted revision.
    pub from: Revision,
    /// The last wanted revision.
    pub upto: Revision,
    /// The watcher existed when the events were written, and may read a bounded number of compacted
    /// ones.
    pub synced: bool,
    /// Events above this revision carry the key before the event.
    pub prev_above: Revision,
    /// Limits of the page.
    pub limits: PageLimits,
}

/// A page of the event history.
#[derive(Debug)]
pub struct Page {
    /// Events inside the requested range.
    pub events: Vec<wire::Event>,
    /// The first revision of the next page; above `current` when there is none.
    pub next: Revision,
    /// The last wanted revision.
    pub current: Revision,
}

impl Keyspace {
    /// The events from a position of the log on.
    pub(super) fn events_from(&self, position: Position) -> impl Iterator<Item = Event<'_>> {
        self.log
            .from(position)
            .map(|entry| Event::new(&self.records, entry))
    }

    /// The events above a revision, oldest first, with those of an open transaction.
    pub fn events_above(&self, revision: Revision) -> impl Iterator<Item = Event<'_>> {
        self.events_from(self.log.position_after(revision))
    }

    /// Number of events above a revision.
    pub(crate) fn count_above(&self, revision: Revision) -> u64 {
        self.log.end() - self.log.position_after(revision)
    }

    /// The position behind the events of a revision.
    pub(crate) fn cursor_after(&self, revision: Revision) -> LogCursor {
        LogCursor(self.log.position_after(revision))
    }

    /// The event at a position; none if a compaction dropped it.
    pub(crate) fn event_at(&self, position: LogCursor) -> Option<Event<'_>> {
        let entry = self.log.get(position.0)?;
        Some(Event::new(&self.records, entry))
    }

    /// The events at the cursor, up to a revision, each with its position; each moves the cursor
    /// behind it.
    pub(crate) fn events_at(
        &self,
        cursor: &mut LogCursor,
        upto: Revision,
    ) -> impl Iterator<Item = (LogCursor, Event<'_>)> {
        let first = self.log.start();
        iter::from_fn(move || {
            let position = cursor.0.max(first);
            let entry = self.log.get(position)?;
            if entry.revision > upto {
                return None;
            }
            cursor.0 = position + 1;
            Some((LogCursor(position), Event::new(&self.records, entry)))
        })
    }

    /// The oldest revision from which every watcher can read; above the compacted one only after a
    /// compaction at a revision of more events than stay readable.
    pub fn watchable(&self) -> Revision {
        self.compacted().max(self.log.dropped() + 1)
    }

    /// The events of a range, oldest first; a page never splits a revision.
    pub fn events(&self, query: EventQuery<'_>) -> Result<Page, Error> {
        let readable =
            (query.synced || query.from >= self.compacted()) && query.from > self.log.dropped();
        if !readable {
            return Err(Error::Compacted);
        }
        let mut page = Filling::default();
        let mut last = query.from - 1;
        let start = self.log.position_after(last);
        for (scanned, entry) in self.log.from(start).enumerate() {
            if entry.revision > query.upto {
                break;
            }
            if entry.revision > last
                && (scanned >= SCANNED_EVENTS_MAX || page.is_full(query.limits))
            {
                return Ok(page.finish(last + 1, query.upto));
            }
            last = entry.revision;
            let event = Event::new(&self.records, entry);
            if query.range.contains(event.key()) {
                page.push(&event, event.revision > query.prev_above);
            }
        }
        Ok(page.finish(query.upto.max(query.from - 1) + 1, query.upto))
    }
}

/// A page that takes events.
#[derive(Default)]
struct Filling {
    events: Vec<wire::Event>,
    buffer: PageBuffer,
    bytes: u64,
}

impl Filling {
    fn is_full(&self, limits: PageLimits) -> bool {
        self.events.len() >= limits.events || self.bytes >= limits.bytes
    }

    fn push(&mut self, event: &Event<'_>, with_prev: bool) {
        let encoded = self.buffer.event(&event.parts(with_prev));
        self.bytes += encoded.encoded().len() as u64;
        self.events.push(encoded);
    }

    fn finish(self, next: Revision, current: Revision) -> Page {
        Page {
            events: self.events,
            next,
            current,
        }
    }
}
