//! One watch stream: its watchers, and the order of its responses.

use std::{collections::BTreeMap, mem, sync::Arc};

use tokio::{sync::mpsc::Sender, time::MissedTickBehavior};
use tonic::{Status, Streaming};

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

/// The client closed the stream.
struct ClientGone;

pub(super) struct WatchStream {
    store: Store,
    /// The user needs permissions when a watch is created, not later.
    credentials: Credentials,
    ready_set: Arc<ReadySet>,
    watchers: BTreeMap<WatchId, Watcher>,
    /// Watchers with further pages to read, each with the first revision.
    backlog: BTreeMap<WatchId, Revision>,
    next_id: WatchId,
    progress_requested: bool,
    out: Sender<Result<WatchResponse, Status>>,
}

impl WatchStream {
    pub(super) fn new(
        store: Store,
        credentials: Credentials,
        out: Sender<Result<WatchResponse, Status>>,
    ) -> Self {
        let ready_set = Arc::default();
        Self {
            store,
            credentials,
            ready_set,
            watchers: BTreeMap::new(),
            backlog: BTreeMap::new(),
            next_id: 0,
            progress_requested: false,
            out,
        }
    }

    /// Serves the stream until the client closes it. A client that only half-closes it still gets
    /// events.
    pub(super) async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let mut ticks = tokio::time::interval(self.store.limits().progress_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let ready_set = Arc::clone(&self.ready_set);
        let mut requests_open = true;
        loop {
            let served = tokio::select! {
                () = self.out.closed() => return,
                request = requests.message(), if requests_open => match request {
                    Ok(Some(request)) => self.request(request).await,
                    Ok(None) => { requests_open = false; Ok(()) }
                    Err(_) => return,
                },
                () = ready_set.woken() => Ok(()),
                _ = ticks.tick() => self.notify_progress().await,
            };
            if served.is_err() || self.send_events().await.is_err() {
                return;
            }
        }
    }

    async fn request(&mut self, request: WatchRequest) -> Result<(), ClientGone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                // As in etcd, there is no response while a watcher is unsynced.
                self.progress_requested = self.all_synced();
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), ClientGone> {
        let (options, range) = (Options::new(&request), watcher::range(&request));
        let permitted = self.check_permission(&request);
        let valid = permitted.and_then(|()| self.validate(request.watch_id, options.start, &range));
        if let Err(reason) = valid {
            let rejected = response::create_rejected(&self.store, &reason);
            return self.send(rejected).await;
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
        self.send(response::created(&self.store, id, current))
            .await?;
        match result {
            Ok(()) => Ok(()),
            Err(compacted) => {
                self.send(response::compacted(&self.store, id, compacted))
                    .await
            }
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

    async fn cancel(&mut self, id: WatchId) -> Result<(), ClientGone> {
        let Some(mut watcher) = self.watchers.remove(&id) else {
            return Ok(());
        };
        self.unregister(&mut watcher);
        self.backlog.remove(&id);
        self.send(response::canceled(&self.store, id)).await
    }

    /// Ends the reads of a watcher. Without its registration it is never read again.
    fn unregister(&self, watcher: &mut Watcher) {
        if let Some(registration) = watcher.registration.take() {
            self.store.cancel_watch(&registration);
        }
    }

    /// Sends one page to each watcher with events to read, then the response to a progress request
    /// if all events are sent. Client requests are handled between the pages of a watcher.
    async fn send_events(&mut self) -> Result<(), ClientGone> {
        let active = |id| self.watchers.get(&id)?.registration.as_ref();
        let mut due = self.store.take_ready(&self.ready_set, active);
        // What remained of the last page comes before any new event.
        due.append(&mut self.backlog);
        for (id, from) in due {
            self.send_page(id, from).await?;
        }
        if !self.backlog.is_empty() {
            self.ready_set.wake();
            return Ok(());
        }
        self.answer_progress().await
    }

    async fn answer_progress(&mut self) -> Result<(), ClientGone> {
        if !self.progress_requested {
            return Ok(());
        }
        let Some(revision) = self.store.progress(&self.ready_set) else {
            return Ok(());
        };
        self.progress_requested = false;
        if !self.all_synced() {
            return Ok(());
        }
        let progress = response::progress(&self.store, response::NO_WATCH, revision);
        self.send(progress).await
    }

    async fn send_page(&mut self, id: WatchId, from: Revision) -> Result<(), ClientGone> {
        let Some(mut watcher) = self.watchers.remove(&id) else {
            return Ok(());
        };
        let responses = self.read_page(id, from, &mut watcher);
        self.watchers.insert(id, watcher);
        for response in responses {
            self.send(response).await?;
        }
        Ok(())
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

    /// Sends progress notifications to the idle watchers that requested them.
    async fn notify_progress(&mut self) -> Result<(), ClientGone> {
        if !self.backlog.is_empty() {
            return Ok(());
        }
        let Some(revision) = self.store.progress(&self.ready_set) else {
            return Ok(());
        };
        let mut due = Vec::new();
        for (&id, watcher) in &mut self.watchers {
            let idle = mem::replace(&mut watcher.idle, true);
            if idle && watcher.options.progress_notify && watcher.is_synced(revision) {
                due.push(id);
            }
        }
        for id in due {
            self.send(response::progress(&self.store, id, revision))
                .await?;
        }
        Ok(())
    }

    /// Whether every watcher is synced: none is canceled, none starts at a future revision.
    fn all_synced(&self) -> bool {
        let current = self.store.revision();
        let mut watchers = self.watchers.values();
        !self.watchers.is_empty() && watchers.all(|watcher| watcher.is_synced(current))
    }

    async fn send(&self, response: WatchResponse) -> Result<(), ClientGone> {
        // The error only carries the response back.
        self.out.send(Ok(response)).await.or(Err(ClientGone))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        for mut watcher in mem::take(&mut self.watchers).into_values() {
            self.unregister(&mut watcher);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
