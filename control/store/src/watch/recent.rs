//! The last events that concern a watcher, each encoded once: the streams of synced watchers share
//! their bytes, and read them without the lock of the state.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    keyspace::{KeyRange, Page, PageLimits, Revision},
    wire::{Event, EventParts, PageBuffer},
};

/// Bytes of all events. A stream that falls further behind reads from the event log.
const BYTES_MAX: usize = 4 << 20;
/// Number of events, above which a stream reads from the event log, too.
const EVENTS_MAX: usize = 4_096;
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

/// The last published events that concern a watcher.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    events: VecDeque<RecentEvent>,
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
        self.bytes as u64
    }

    /// Appends an event. The oldest revisions are dropped as a whole, so that a page never lacks a
    /// part of one.
    pub(crate) fn push(&mut self, revision: Revision, parts: &EventParts<'_>) {
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
        while self.bytes > BYTES_MAX || self.events.len() > EVENTS_MAX {
            self.drop_revision();
        }
    }

    fn drop_revision(&mut self) {
        let Some(first) = self.events.front() else {
            return;
        };
        self.missing = first.revision;
        while let Some(event) = self
            .events
            .pop_front_if(|event| event.revision <= self.missing)
        {
            self.bytes -= event.event.encoded().len() + EVENT_BYTES;
        }
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
        let mut page = Page {
            events: Vec::new(),
            next: self.upto.max(read.from - 1) + 1,
            current: self.upto,
        };
        let (mut bytes, mut last) = (0, read.from - 1);
        let start = self
            .events
            .partition_point(|event| event.revision < read.from);
        for event in self.events.range(start..) {
            if event.revision > self.upto {
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
            recent.push(revision, &put(key));
        }
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
        recent.push(3, &put("a"));
        let range = KeyRange::One("a".into());
        assert!(recent.page(read(&range, 2, ALL)).is_none());
        push(&mut recent, 3, &["a"]);
        assert_eq!(recent.page(read(&range, 2, ALL)).unwrap().events.len(), 3);
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
