//! One watch of a stream: what its client asked for, and how far it has read.

use bytes::Bytes;

use crate::{
    keyspace::{Event, KeyRange, PageLimits, Revision},
    proto::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType},
};

/// Changes of one page: what a stream holds for its client is a page and a few responses.
const PAGE_EVENTS: usize = 1_000;
/// Bytes of one page.
const PAGE_BYTES: u64 = 1 << 20;

pub(super) struct Watcher {
    pub(super) request: WatchCreateRequest,
    pub(super) range: KeyRange,
    /// Revision at which the watch was made: what is newer, it has seen come.
    pub(super) made: Revision,
    /// Next revision to read.
    pub(super) next: Revision,
    /// Nothing was sent since the last tick.
    pub(super) idle: bool,
    /// It was ended by a compaction; its number is taken until the client cancels it.
    pub(super) compacted: bool,
}

impl Watcher {
    pub(super) fn new(request: WatchCreateRequest) -> Self {
        // An empty key stands for the lowest that can be.
        let lowest = Bytes::from_static(b"\0");
        let key = if request.key.is_empty() {
            &lowest
        } else {
            &request.key
        };
        Self {
            range: KeyRange::new(key, &request.range_end),
            made: 0,
            next: request.start_revision,
            idle: false,
            compacted: false,
            request,
        }
    }

    /// First revision wanted; 0: from now on.
    pub(super) fn start(&self) -> Revision {
        self.request.start_revision
    }

    /// Whether the filters let a change pass.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let filter = if event.deleted {
            FilterType::Nodelete
        } else {
            FilterType::Noput
        };
        !self.request.filters.contains(&filter.into())
    }

    /// Whether the change is sent with what was before: not if that was compacted before this
    /// watch could see it.
    pub(super) fn wants_prev(&self, event: &Event, compacted: Revision) -> bool {
        self.request.prev_kv && (event.revision > self.made || event.revision > compacted)
    }

    /// What is read at once. A reader behind may get any number of bytes if it takes them in parts.
    pub(super) fn page_limits(&self, from: Revision) -> PageLimits {
        let in_parts = self.request.fragment && from <= self.made;
        let bytes = if in_parts { u64::MAX } else { PAGE_BYTES };
        PageLimits {
            events: PAGE_EVENTS,
            bytes,
        }
    }
}
