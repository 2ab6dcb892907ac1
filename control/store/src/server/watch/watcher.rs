//! One watcher of a stream: the client's create request, and the next revision to read.

use bytes::Bytes;

use crate::{
    keyspace::{Event, KeyRange, PageLimits, Revision},
    proto::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType},
};

/// Events of one page. A stream holds at most a page and its queued responses in memory.
const PAGE_EVENTS: usize = 1_000;
/// Bytes of one page.
const PAGE_BYTES: u64 = 1 << 20;

pub(super) struct Watcher {
    pub(super) request: WatchCreateRequest,
    pub(super) range: KeyRange,
    /// The store's revision when the watcher was created. It is synced from the next one on.
    pub(super) created_revision: Revision,
    /// Next revision to read.
    pub(super) next: Revision,
    /// Nothing was sent since the last tick of the progress interval.
    pub(super) idle: bool,
    /// Canceled by a compaction; its ID stays in use until the client cancels it.
    pub(super) compacted: bool,
}

impl Watcher {
    pub(super) fn new(request: WatchCreateRequest) -> Self {
        // As in etcd, an empty key means the lowest key.
        let lowest = Bytes::from_static(b"\0");
        let key = if request.key.is_empty() {
            &lowest
        } else {
            &request.key
        };
        Self {
            range: KeyRange::new(key, &request.range_end),
            created_revision: 0,
            next: request.start_revision,
            idle: false,
            compacted: false,
            request,
        }
    }

    /// First revision to watch; 0 is the next revision of the store.
    pub(super) fn start(&self) -> Revision {
        self.request.start_revision
    }

    /// Whether an event passes the filters of the create request.
    pub(super) fn passes_filters(&self, event: &Event) -> bool {
        let filter = if event.deleted {
            FilterType::Nodelete
        } else {
            FilterType::Noput
        };
        !self.request.filters.contains(&filter.into())
    }

    /// Whether an event is sent with its previous version: not if that was compacted before the
    /// watcher was synced.
    pub(super) fn includes_prev_kv(&self, event: &Event, compacted: Revision) -> bool {
        self.request.prev_kv
            && (event.revision > self.created_revision || event.revision > compacted)
    }

    /// The limits of the next page. An unsynced watcher with fragments enabled has no byte limit.
    pub(super) fn page_limits(&self, from: Revision) -> PageLimits {
        let fragmented = self.request.fragment && from <= self.created_revision;
        let bytes = if fragmented { u64::MAX } else { PAGE_BYTES };
        PageLimits {
            events: PAGE_EVENTS,
            bytes,
        }
    }
}
