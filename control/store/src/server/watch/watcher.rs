//! One watcher of a stream: the options of the create request, and the next revision to read.

use bytes::Bytes;

use crate::{
    keyspace::{KeyRange, PageLimits, Revision},
    proto::etcdserverpb::{WatchCreateRequest, watch_create_request::FilterType},
    watch::Registration,
    wire::Event,
};

/// Events of one page. A stream holds at most a page and its queued responses in memory.
const PAGE_EVENTS: usize = 1_000;
/// Bytes of one page; bounds the memory of a stream whose client does not read.
const PAGE_BYTES: u64 = 256 << 10;

/// The options of a create request; its keys are in the registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// First revision to watch; 0 is the next revision of the store.
    pub(super) start: Revision,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
    pub(super) progress_notify: bool,
    /// Whether puts and deletions are filtered out.
    filtered: [bool; 2],
}

impl Options {
    pub(super) fn new(request: &WatchCreateRequest) -> Self {
        Self {
            start: request.start_revision,
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            filtered: [FilterType::Noput, FilterType::Nodelete]
                .map(|filter| request.filters.contains(&filter.into())),
        }
    }

    /// Whether an event passes the filters.
    pub(super) fn pass(self, event: &Event) -> bool {
        !self.filtered[usize::from(event.is_delete())]
    }
}

/// The range of a create request. The keys are copied: slices would keep the buffer of the request
/// alive as long as the watcher.
pub(super) fn range(request: &WatchCreateRequest) -> KeyRange {
    let key = Bytes::copy_from_slice(first_key(request));
    KeyRange::new(&key, &Bytes::copy_from_slice(&request.range_end))
}

/// The first key of a create request. As in etcd, an empty key means the lowest key.
pub(super) fn first_key(request: &WatchCreateRequest) -> &[u8] {
    if request.key.is_empty() {
        b"\0"
    } else {
        &request.key
    }
}

pub(super) struct Watcher {
    pub(super) options: Options,
    /// `None` after a compaction canceled the watcher: it reads nothing more. Its ID stays in use
    /// until the client cancels it.
    pub(super) registration: Option<Registration>,
    /// The store's revision when the watcher was created. It is synced from the next one on.
    pub(super) created_revision: Revision,
    /// Next revision to read.
    pub(super) next: Revision,
    /// Nothing was sent since the last tick of the progress interval.
    pub(super) idle: bool,
}

impl Watcher {
    /// A registered watcher, or one that was canceled at once.
    pub(super) fn new(
        options: Options,
        registration: Option<Registration>,
        created_revision: Revision,
    ) -> Self {
        Self {
            options,
            next: registration.as_ref().map_or(0, |active| active.start),
            registration,
            created_revision,
            idle: false,
        }
    }

    /// Whether the watcher is synced at a revision: it is not canceled, and does not start later.
    pub(super) fn is_synced(&self, current: Revision) -> bool {
        self.registration.is_some() && self.options.start <= current
    }

    /// The limits of the next page. Past events for a client that accepts fragments come in a larger
    /// page, which is then split into messages of at most `message_bytes_max`.
    pub(super) fn page_limits(&self, from: Revision, message_bytes_max: usize) -> PageLimits {
        let fragmented = self.options.fragment && from <= self.created_revision;
        let bytes = if fragmented {
            2 * message_bytes_max as u64
        } else {
            PAGE_BYTES
        };
        PageLimits {
            events: PAGE_EVENTS,
            bytes,
        }
    }
}
