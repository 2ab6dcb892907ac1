//! The responses of a watch stream, and their fragments.

use std::mem;

use prost::Message;

use crate::{
    Store,
    keyspace::{Page, Revision},
    proto::etcdserverpb::WatchResponse,
    watch::WatchId,
};

/// The watch ID of rejected create requests and of responses to progress requests.
pub(super) const NO_WATCH: WatchId = -1;

pub(super) fn created(store: &Store, id: WatchId, revision: Revision) -> WatchResponse {
    WatchResponse {
        created: true,
        ..progress(store, id, revision)
    }
}

pub(super) fn create_rejected(store: &Store, reason: &str) -> WatchResponse {
    let cancel_reason = reason.to_owned();
    let response = created(store, NO_WATCH, store.revision());
    WatchResponse {
        canceled: true,
        cancel_reason,
        ..response
    }
}

pub(super) fn canceled(store: &Store, id: WatchId) -> WatchResponse {
    WatchResponse {
        canceled: true,
        ..progress(store, id, store.revision())
    }
}

/// The watcher reads below the compacted revision and is canceled; the header has no revision.
pub(super) fn compacted(store: &Store, id: WatchId, compacted: Revision) -> WatchResponse {
    WatchResponse {
        canceled: true,
        compact_revision: compacted,
        ..progress(store, id, 0)
    }
}

pub(super) fn progress(store: &Store, id: WatchId, revision: Revision) -> WatchResponse {
    let header = Some(store.header(revision));
    WatchResponse {
        header,
        watch_id: id,
        ..WatchResponse::default()
    }
}

/// The header revision for a page: the current revision only if the page is the last.
pub(super) fn header_revision(page: &Page) -> Revision {
    if page.next > page.current {
        page.current
    } else {
        page.next - 1
    }
}

/// Splits a response into fragments of at most `bytes_max`; a fragment with a single event may be
/// longer. All fragments but the last have the field `fragment` set.
pub(super) fn fragments(mut response: WatchResponse, bytes_max: usize) -> Vec<WatchResponse> {
    if response.encoded_len() <= bytes_max {
        return vec![response];
    }
    let events = mem::take(&mut response.events);
    let base = response.encoded_len();
    let mut parts = Vec::new();
    let (mut part, mut part_bytes) = (response.clone(), base);
    for event in events {
        let event_bytes = event.encoded_len();
        if !part.events.is_empty() && part_bytes + event_bytes > bytes_max {
            let full = mem::replace(&mut part, response.clone());
            parts.push(WatchResponse {
                fragment: true,
                ..full
            });
            part_bytes = base;
        }
        part_bytes += event_bytes;
        part.events.push(event);
    }
    parts.push(part);
    parts
}
