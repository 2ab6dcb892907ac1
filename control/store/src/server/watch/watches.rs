//! The watches of one stream, without a transport: client requests and events go in, responses come
//! out in order.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{
    response,
    watcher::{self, Options, Watcher},
};
use crate::{
    Error, Store,
    auth::Credentials,
    keyspace::{KeyRange, Page, Revision},
    proto::etcdserverpb::{
        WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
    },
    server::session::Session,
    store::PageRead,
    watch::{ReadySet, Registration, WatchId},
};

const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

pub(super) struct Watches {
    store: Store,
    /// The user needs permissions when a watch is created, not later.
    credentials: Credentials,
    ready_set: Arc<ReadySet>,
    watchers: BTreeMap<WatchId, Watcher>,
    /// Watchers that are read next, each with the first revision.
    due: BTreeMap<WatchId, Revision>,
    /// Watchers with further pages, which are read after those that are due.
    backlog: BTreeMap<WatchId, Revision>,
    next_id: WatchId,
    progress_requested: bool,
    /// Responses to one request, or one page of one watcher.
    out: VecDeque<WatchResponse>,
}

impl Watches {
    pub(super) fn new(store: Store, credentials: Credentials) -> Self {
        Self {
            store,
            credentials,
            ready_set: Arc::default(),
            watchers: BTreeMap::new(),
            due: BTreeMap::new(),
            backlog: BTreeMap::new(),
            next_id: 0,
            progress_requested: false,
            out: VecDeque::new(),
        }
    }

    /// Interval of [`notify_progress`](Self::notify_progress).
    pub(super) fn progress_interval(&self) -> Duration {
        self.store.limits().progress_interval
    }

    /// Is woken when a watcher has events to read.
    pub(super) fn ready_set(&self) -> Arc<ReadySet> {
        Arc::clone(&self.ready_set)
    }

    /// The next response to send, if there is one already.
    pub(super) fn pop(&mut self) -> Option<WatchResponse> {
        self.out.pop_front()
    }

    /// Whether a watcher has events to read, which another call of [`read`](Self::read) reads.
    pub(super) fn has_more(&self) -> bool {
        !(self.due.is_empty() && self.backlog.is_empty())
    }

    /// Handles a request of the client.
    pub(super) fn request(&mut self, request: WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(&request),
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => {
                // As in etcd, there is no response while a watcher is unsynced.
                self.progress_requested = self.all_synced();
            }
            None => {}
        }
    }

    fn create(&mut self, request: &WatchCreateRequest) {
        let (options, range) = (Options::new(request), watcher::range(request));
        let permitted = self.check_permission(request);
        let valid = permitted.and_then(|()| self.validate(request.watch_id, options.start, &range));
        if let Err(reason) = valid {
            let rejected = response::create_rejected(&self.store, &reason);
            return self.out.push_back(rejected);
        }
        let id = self.choose_id(request.watch_id);
        let mut registration = Registration {
            ready_set: Arc::clone(&self.ready_set),
            id,
            range,
            start: options.start,
        };
        let (current, result) = self.store.watch(&mut registration);
        let registration = result.is_ok().then_some(registration);
        self.watchers
            .insert(id, Watcher::new(options, registration, current));
        self.out
            .push_back(response::created(&self.store, id, current));
        if let Err(compacted) = result {
            self.out
                .push_back(response::compacted(&self.store, id, compacted));
        }
    }

    /// Checks the permission to read the range; the reason has the form of a Go status.
    fn check_permission(&self, request: &WatchCreateRequest) -> Result<(), String> {
        let session = Session::of_stream(&self.store, &self.credentials);
        let checked = session.check_watch(watcher::first_key(request), &request.range_end);
        checked.map_err(|status| {
            let (code, text) = (status.code(), status.message());
            format!("rpc error: code = {code:?} desc = {text}")
        })
    }

    fn validate(&self, id: WatchId, start: Revision, range: &KeyRange) -> Result<(), String> {
        if start < 0 {
            return Err(Error::Compacted.to_string());
        }
        if range.is_empty() {
            return Err(EMPTY_RANGE.into());
        }
        if id != 0 && self.watchers.contains_key(&id) {
            return Err(DUPLICATE_ID.into());
        }
        Ok(())
    }

    fn choose_id(&mut self, wanted: WatchId) -> WatchId {
        if wanted != 0 {
            return wanted;
        }
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn cancel(&mut self, id: WatchId) {
        let Some(mut watcher) = self.watchers.remove(&id) else {
            return;
        };
        self.unregister(&mut watcher);
        self.due.remove(&id);
        self.backlog.remove(&id);
        self.out.push_back(response::canceled(&self.store, id));
    }

    /// Ends the reads of a watcher. Without its registration it is never read again.
    fn unregister(&self, watcher: &mut Watcher) {
        if let Some(registration) = watcher.registration.take() {
            self.store.cancel_watch(&registration);
        }
    }

    /// Reads a page of the next watcher that has events, if there is one. When all events are sent,
    /// answers a progress request. Client requests are handled between two calls.
    pub(super) fn read(&mut self) {
        if self.due.is_empty() {
            let active = |id| self.watchers.get(&id)?.registration.as_ref();
            self.due = self.store.take_ready(&self.ready_set, active);
            // What remained of the last page comes before any new event.
            self.due.append(&mut self.backlog);
        }
        match self.due.pop_first() {
            Some((id, from)) => self.read_watcher(id, from),
            None => self.answer_progress(),
        }
    }

    fn answer_progress(&mut self) {
        if !self.progress_requested {
            return;
        }
        let Some(revision) = self.store.progress(&self.ready_set) else {
            return;
        };
        self.progress_requested = false;
        if self.all_synced() {
            let progress = response::progress(&self.store, response::NO_WATCH, revision);
            self.out.push_back(progress);
        }
    }

    fn read_watcher(&mut self, id: WatchId, from: Revision) {
        if let Some(mut watcher) = self.watchers.remove(&id) {
            let responses = self.read_page(id, from, &mut watcher);
            self.out.extend(responses);
            self.watchers.insert(id, watcher);
        }
    }

    /// Reads the next page of a watcher; returns the responses to send.
    fn read_page(
        &mut self,
        id: WatchId,
        from: Revision,
        watcher: &mut Watcher,
    ) -> Vec<WatchResponse> {
        let Some(registration) = &watcher.registration else {
            return Vec::new();
        };
        let from = from.max(watcher.next);
        let message_bytes_max = self.store.limits().message_bytes_max();
        let limits = watcher.page_limits(from, message_bytes_max);
        let read = self.store.events(&PageRead {
            range: &registration.range,
            from,
            created_revision: watcher.created_revision,
            prev_kv: watcher.options.prev_kv,
            limits,
        });
        let page = match read {
            Ok(page) => page,
            Err(compacted) => {
                self.unregister(watcher);
                return vec![response::compacted(&self.store, id, compacted)];
            }
        };
        watcher.next = page.next;
        if page.next <= page.current {
            self.backlog.insert(id, page.next);
        }
        let response = self.events(id, page, watcher);
        if response.events.is_empty() {
            return Vec::new();
        }
        watcher.idle = false;
        if watcher.options.fragment {
            response::fragments(response, message_bytes_max)
        } else {
            vec![response]
        }
    }

    /// The events of a page as a response.
    fn events(&self, id: WatchId, page: Page, watcher: &Watcher) -> WatchResponse {
        let revision = response::header_revision(&page);
        let events = page.events.into_iter();
        let wanted = events.filter(|event| watcher.options.pass(event));
        WatchResponse {
            events: wanted.collect(),
            ..response::progress(&self.store, id, revision)
        }
    }

    /// Notifies the idle watchers that requested it of the progress; called at each tick of the
    /// progress interval.
    pub(super) fn notify_progress(&mut self) {
        if self.has_more() {
            return;
        }
        let Some(revision) = self.store.progress(&self.ready_set) else {
            return;
        };
        for (&id, watcher) in &mut self.watchers {
            let idle = mem::replace(&mut watcher.idle, true);
            if idle && watcher.options.progress_notify && watcher.is_synced(revision) {
                self.out
                    .push_back(response::progress(&self.store, id, revision));
            }
        }
    }

    /// Whether every watcher is synced: none is canceled, none starts at a future revision.
    fn all_synced(&self) -> bool {
        let current = self.store.revision();
        let mut watchers = self.watchers.values();
        !self.watchers.is_empty() && watchers.all(|watcher| watcher.is_synced(current))
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for mut watcher in mem::take(&mut self.watchers).into_values() {
            self.unregister(&mut watcher);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
