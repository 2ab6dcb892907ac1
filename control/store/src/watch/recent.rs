//! The last events that concern a watcher, each encoded once: the streams of synced watchers share
//! their bytes. The first stream that reads an event encodes it, so that writes beside streams that
//! do not read cost little.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    keyspace::{KeyRange, LogCursor, Page, PageLimits, Revision},
    wire::{Event, EventParts, PageBuffer},
};

/// Bytes of all events. A stream that falls further behind reads from the event log.
const BYTES_MAX: usize = 4 << 20;
/// Number of events, above which a stream reads from the event log, too.
const EVENTS_MAX: usize = 4_096;
/// Events that one slice encodes; bounds the time for which it holds the lock of the state.
const SLICE_EVENTS: usize = 256;
/// Bytes of an event besides its message.
const EVENT_BYTES: usize = size_of::<RecentEvent>();

#[derive(Debug)]
struct RecentEvent {
    revision: Revision,
    /// A slice of the message.
    key: Bytes,
    /// With the key before the event.
    event: Event,
}

/// A synced watcher's read of its next page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentRead<'a> {
    /// The watched keys.
    pub(crate) range: &'a KeyRange,
    /// The first revision to read. The watcher was registered before this revision was published.
    pub(crate) from: Revision,
    /// Whether events carry the key before the event.
    pub(crate) prev_kv: bool,
    /// Limits of the page.
    pub(crate) limits: PageLimits,
}

/// An event that no stream has read.
#[derive(Clone, Copy, Debug)]
struct Pending {
    revision: Revision,
    position: LogCursor,
}

/// The last published events that concern a watcher.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    events: VecDeque<RecentEvent>,
    /// The events behind those, which are not encoded.
    pending: VecDeque<Pending>,
    bytes: usize,
    /// The newest revision of which an event is missing.
    missing: Revision,
    /// The newest published revision.
    upto: Revision,
    buffer: PageBuffer,
}

impl Recent {
    /// Bytes of all events, as they are counted.
    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes + self.pending.len() * size_of::<Pending>()) as u64
    }

    /// Appends an event, by its position in the log.
    pub(crate) fn push(&mut self, revision: Revision, position: LogCursor) {
        if revision <= self.missing {
            return;
        }
        self.pending.push_back(Pending { revision, position });
        if self.pending.len() > EVENTS_MAX
            && let Some(first) = self.pending.front()
        {
            self.forget(first.revision);
        }
    }

    /// Whether a read from a revision needs events that are not encoded.
    pub(crate) fn must_encode(&self, from: Revision) -> bool {
        from > self.missing && !self.pending.is_empty()
    }

    /// Encodes some events, whose parts are found by their position. Those of an event that left the
    /// log are not.
    pub(crate) fn encode<'a>(&mut self, find: impl Fn(LogCursor) -> Option<EventParts<'a>>) {
        for _ in 0..SLICE_EVENTS {
            let Some(pending) = self.pending.pop_front() else {
                return;
            };
            match find(pending.position) {
                Some(parts) => self.append(pending.revision, &parts),
                None => self.forget(pending.revision),
            }
        }
    }

    /// Appends an encoded event.
    fn append(&mut self, revision: Revision, parts: &EventParts<'_>) {
        if revision <= self.missing {
            return;
        }
        let event = self.buffer.event(parts);
        let encoded = event.encoded();
        self.bytes += encoded.len() + EVENT_BYTES;
        self.events.push_back(RecentEvent {
            revision,
            key: encoded.slice_ref(event.kv().key),
            event,
        });
        while (self.bytes > BYTES_MAX || self.events.len() > EVENTS_MAX)
            && let Some(first) = self.events.front()
        {
            self.forget(first.revision);
        }
    }

    /// Drops the events up to a revision. Revisions are dropped as a whole, so that a page never
    /// lacks a part of one.
    fn forget(&mut self, upto: Revision) {
        self.missing = upto;
        while let Some(event) = self.events.pop_front_if(|event| event.revision <= upto) {
            self.bytes -= event.event.encoded().len() + EVENT_BYTES;
        }
        while self
            .pending
            .pop_front_if(|event| event.revision <= upto)
            .is_some()
        {}
    }

    /// The newest revision of which all events are encoded.
    fn encoded_upto(&self) -> Revision {
        let pending = self.pending.front();
        pending.map_or(self.upto, |first| self.upto.min(first.revision - 1))
    }

    /// All events up to a revision are appended.
    pub(crate) fn publish(&mut self, upto: Revision) {
        self.upto = self.upto.max(upto);
    }

    /// The next page of a watcher; `None` if its events are no longer here, or those of a revision
    /// not all yet.
    pub(crate) fn page(&self, read: RecentRead<'_>) -> Option<Page> {
        if read.from <= self.missing {
            return None;
        }
        let upto = self.encoded_upto();
        let mut page = Page {
            events: Vec::new(),
            next: upto.max(read.from - 1) + 1,
            current: upto,
        };
        let (mut bytes, mut last) = (0, read.from - 1);
        let start = self
            .events
            .partition_point(|event| event.revision < read.from);
        for event in self.events.range(start..) {
            if event.revision > upto {
                return None;
            }
            let full = page.events.len() >= read.limits.events || bytes >= read.limits.bytes;
            if full && event.revision > last {
                page.next = last + 1;
                break;
            }
            last = event.revision;
            if read.range.contains(&event.key) {
                let wanted = event.wanted(read.prev_kv);
                bytes += wanted.encoded().len() as u64;
                page.events.push(wanted);
            }
        }
        Some(page)
    }
}

impl RecentEvent {
    fn wanted(&self, prev_kv: bool) -> Event {
        if prev_kv {
            self.event.clone()
        } else {
            self.event.without_prev()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Keyspace;

    const ALL: PageLimits = PageLimits {
        events: usize::MAX,
        bytes: u64::MAX,
    };

    fn put(key: &'static str) -> EventParts<'static> {
        EventParts {
            deleted: false,
            key: key.as_bytes(),
            kv: b"\x10\x01",
            prev: Some(b"\x10\x02"),
        }
    }

    /// Appends a put of each key, in one revision.
    fn push(recent: &mut Recent, revision: Revision, keys: &[&'static str]) {
        for key in keys {
            recent.append(revision, &put(key));
        }
        recent.publish(revision);
    }

    /// Appends a put of the key `a` that is not encoded, as the only event of its revision.
    fn push_pending(recent: &mut Recent, revision: Revision) {
        recent.push(revision, Keyspace::default().cursor_after(0));
        recent.publish(revision);
    }

    fn read(range: &KeyRange, from: Revision, limits: PageLimits) -> RecentRead<'_> {
        RecentRead {
            range,
            from,
            prev_kv: true,
            limits,
        }
    }

    fn keys(page: &Page) -> Vec<&[u8]> {
        page.events.iter().map(|event| event.kv().key).collect()
    }

    #[test]
    fn a_page_has_the_events_of_its_range_and_never_splits_a_revision() {
        let mut recent = Recent::default();
        push(&mut recent, 2, &["a", "x", "b"]);
        push(&mut recent, 3, &["x"]);
        push(&mut recent, 4, &["c", "d"]);
        recent.publish(7);
        let range = KeyRange::Span("a".into(), "d".into());
        let one = PageLimits { events: 1, ..ALL };
        let first = recent.page(read(&range, 2, one)).unwrap();
        assert_eq!((keys(&first), first.next), (vec![&b"a"[..], b"b"], 3));
        let rest = recent.page(read(&range, first.next, one)).unwrap();
        assert_eq!(
            (keys(&rest), rest.next, rest.current),
            (vec![&b"c"[..]], 8, 7)
        );
        let later = recent.page(read(&range, 9, ALL)).unwrap();
        assert_eq!((later.events.len(), later.next), (0, 9));
    }

    #[test]
    fn a_revision_is_not_read_before_all_its_events_are_here() {
        let mut recent = Recent::default();
        push(&mut recent, 2, &["a"]);
        recent.append(3, &put("a"));
        let range = KeyRange::One("a".into());
        assert!(recent.page(read(&range, 2, ALL)).is_none());
        push(&mut recent, 3, &["a"]);
        assert_eq!(recent.page(read(&range, 2, ALL)).unwrap().events.len(), 3);
    }

    #[test]
    fn pending_events_are_encoded_before_a_page_has_them() {
        let mut recent = Recent::default();
        push(&mut recent, 2, &["a"]);
        push_pending(&mut recent, 3);
        push_pending(&mut recent, 5);
        assert!(recent.must_encode(3));
        let range = KeyRange::One("a".into());
        let before = recent.page(read(&range, 2, ALL)).unwrap();
        assert_eq!(
            (before.events.len(), before.next, before.current),
            (1, 3, 2)
        );
        recent.encode(|_| Some(put("a")));
        assert!(!recent.must_encode(3));
        let page = recent.page(read(&range, 2, ALL)).unwrap();
        assert_eq!((page.events.len(), page.next, page.current), (3, 6, 5));
    }

    #[test]
    fn a_pending_event_that_left_the_log_is_missing() {
        let mut recent = Recent::default();
        push(&mut recent, 2, &["a"]);
        push_pending(&mut recent, 3);
        push_pending(&mut recent, 4);
        let gone = std::cell::Cell::new(true);
        recent.encode(|_| (!gone.replace(false)).then(|| put("a")));
        let range = KeyRange::One("a".into());
        assert!(recent.page(read(&range, 3, ALL)).is_none());
        assert_eq!(recent.page(read(&range, 4, ALL)).unwrap().events.len(), 1);
        assert!(!recent.must_encode(3));
    }

    #[test]
    fn events_that_no_stream_reads_are_forgotten_from_the_oldest_on() {
        let mut recent = Recent::default();
        push(&mut recent, 1, &["a"]);
        let count = Revision::try_from(EVENTS_MAX).unwrap() + 10;
        for revision in 2..2 + count {
            push_pending(&mut recent, revision);
        }
        assert_eq!((recent.pending.len(), recent.events.len()), (EVENTS_MAX, 0));
        assert!(!recent.must_encode(11) && recent.must_encode(12));
        assert_eq!(recent.bytes(), (EVENTS_MAX * size_of::<Pending>()) as u64);
    }

    #[test]
    fn the_key_before_the_event_is_sent_only_if_it_is_wanted() {
        let mut recent = Recent::default();
        push(&mut recent, 2, &["a"]);
        let range = KeyRange::One("a".into());
        for prev_kv in [true, false] {
            let read = RecentRead {
                prev_kv,
                ..read(&range, 2, ALL)
            };
            let page = recent.page(read).unwrap();
            let prev = page.events[0].prev_kv();
            assert_eq!(prev.map(|prev| prev.key), prev_kv.then_some(&b"a"[..]));
            assert_eq!(page.events[0].kv().key, b"a");
        }
    }

    #[test]
    fn the_oldest_revisions_are_dropped_and_their_readers_get_no_page() {
        let mut recent = Recent::default();
        let count = Revision::try_from(EVENTS_MAX).unwrap();
        for revision in 1..=count {
            push(&mut recent, revision, &["a", "b"]);
        }
        assert_eq!(recent.events.len(), EVENTS_MAX);
        let range = KeyRange::From("a".into());
        assert!(recent.page(read(&range, count / 2, ALL)).is_none());
        let page = recent.page(read(&range, count / 2 + 1, ALL)).unwrap();
        assert_eq!(page.events.len(), EVENTS_MAX);
        let bytes = recent
            .events
            .iter()
            .map(|event| event.event.encoded().len() + EVENT_BYTES);
        assert_eq!(recent.bytes, bytes.sum::<usize>());
    }

    #[test]
    fn a_revision_larger_than_the_limit_is_missing_as_a_whole() {
        let mut recent = Recent::default();
        for revision in [2, 3] {
            let keys = vec!["a"; EVENTS_MAX + 10];
            push(&mut recent, revision, &keys);
        }
        push(&mut recent, 4, &["a"]);
        let range = KeyRange::One("a".into());
        assert!(recent.page(read(&range, 3, ALL)).is_none());
        assert_eq!(recent.page(read(&range, 4, ALL)).unwrap().events.len(), 1);
    }
}
