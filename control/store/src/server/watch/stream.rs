//! One watch stream: its watchers, and the order of its responses.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{sync::mpsc::Sender, time::MissedTickBehavior};
use tonic::{Status, Streaming};

use super::{response, watcher::Watcher};
use crate::{
    Error, Store,
    keyspace::Revision,
    proto::etcdserverpb::{
        WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
    },
    watch::{ReadySet, WatchId},
};

const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// The client closed the stream.
struct ClientGone;

pub(super) struct WatchStream {
    store: Store,
    ready_set: Arc<ReadySet>,
    watchers: BTreeMap<WatchId, Watcher>,
    next_id: WatchId,
    progress_requested: bool,
    out: Sender<Result<WatchResponse, Status>>,
}

impl WatchStream {
    pub(super) fn new(store: Store, out: Sender<Result<WatchResponse, Status>>) -> Self {
        let ready_set = Arc::default();
        Self {
            store,
            ready_set,
            watchers: BTreeMap::new(),
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
                () = ready_set.changed() => Ok(()),
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
        let wanted_id = request.watch_id;
        let mut watcher = Watcher::new(request);
        if let Err(reason) = self.validate(&watcher) {
            return self
                .send(response::create_rejected(&self.store, &reason))
                .await;
        }
        let id = self.choose_id(wanted_id);
        let (current, result) =
            self.store
                .watch(&self.ready_set, id, &watcher.range, watcher.start());
        watcher.created_revision = current;
        if watcher.start() == 0 {
            watcher.next = current + 1;
        }
        watcher.compacted = result.is_err();
        self.watchers.insert(id, watcher);
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

    fn validate(&self, watcher: &Watcher) -> Result<(), String> {
        if watcher.start() < 0 {
            return Err(Error::Compacted.to_string());
        }
        if watcher.range.is_empty() {
            return Err(EMPTY_RANGE.into());
        }
        let wanted_id = watcher.request.watch_id;
        if wanted_id != 0 && self.watchers.contains_key(&wanted_id) {
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
        let Some(watcher) = self.watchers.remove(&id) else {
            return Ok(());
        };
        if !watcher.compacted {
            self.store.cancel_watch(&self.ready_set, id, &watcher.range);
        }
        self.send(response::canceled(&self.store, id)).await
    }

    /// Sends one page to each marked watcher, then the response to a progress request if all events
    /// are sent. A watcher with further pages is marked again, so that client requests are handled
    /// between its pages.
    async fn send_events(&mut self) -> Result<(), ClientGone> {
        for (id, from) in self.ready_set.take() {
            self.send_page(id, from).await?;
        }
        if self.progress_requested
            && let Some(revision) = self.store.progress(&self.ready_set)
        {
            self.progress_requested = false;
            self.send(response::progress(
                &self.store,
                response::NO_WATCH,
                revision,
            ))
            .await?;
        }
        Ok(())
    }

    async fn send_page(&mut self, id: WatchId, from: Revision) -> Result<(), ClientGone> {
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return Ok(());
        };
        let from = from.max(watcher.next);
        let (synced, limits) = (from > watcher.created_revision, watcher.page_limits(from));
        let (page, compacted) = self.store.events(&watcher.range, from, synced, limits);
        let Ok(page) = page else {
            watcher.compacted = true;
            self.store.cancel_watch(&self.ready_set, id, &watcher.range);
            return self
                .send(response::compacted(&self.store, id, compacted))
                .await;
        };
        watcher.next = page.next;
        if page.next <= page.current {
            self.ready_set.mark(id, page.next);
        }
        let revision = response::header_revision(&page);
        let wanted = page
            .events
            .into_iter()
            .filter(|event| watcher.passes_filters(event));
        let events = wanted.map(|event| {
            let with_prev = watcher.includes_prev_kv(&event, compacted);
            response::event(event, with_prev)
        });
        let mut response = response::progress(&self.store, id, revision);
        response.events = events.collect();
        if response.events.is_empty() {
            return Ok(());
        }
        watcher.idle = false;
        let message_bytes_max = self.store.limits().message_bytes_max();
        let bytes_max = if watcher.request.fragment {
            message_bytes_max
        } else {
            usize::MAX
        };
        for part in response::fragments(response, bytes_max) {
            self.send(part).await?;
        }
        Ok(())
    }

    /// Sends progress notifications to the idle watchers that requested them.
    async fn notify_progress(&mut self) -> Result<(), ClientGone> {
        let Some(revision) = self.store.progress(&self.ready_set) else {
            return Ok(());
        };
        let mut idle = Vec::new();
        for (&id, watcher) in &mut self.watchers {
            let due = watcher.idle && watcher.request.progress_notify && !watcher.compacted;
            if due && watcher.start() <= revision {
                idle.push(id);
            }
            watcher.idle = true;
        }
        for id in idle {
            self.send(response::progress(&self.store, id, revision))
                .await?;
        }
        Ok(())
    }

    /// Whether every watcher is synced: none is compacted, none starts at a future revision.
    fn all_synced(&self) -> bool {
        let current = self.store.revision();
        let synced = |watcher: &Watcher| !watcher.compacted && watcher.start() <= current;
        !self.watchers.is_empty() && self.watchers.values().all(synced)
    }

    async fn send(&self, response: WatchResponse) -> Result<(), ClientGone> {
        // The error only carries the response back.
        self.out.send(Ok(response)).await.or(Err(ClientGone))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        for (&id, watcher) in self
            .watchers
            .iter()
            .filter(|(_, watcher)| !watcher.compacted)
        {
            self.store.cancel_watch(&self.ready_set, id, &watcher.range);
        }
    }
}
