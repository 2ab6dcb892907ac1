//! One watch stream: its watches, and the order in which they are served.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{sync::mpsc::Sender, time::MissedTickBehavior};
use tonic::{Status, Streaming};

use super::{answer, watcher::Watcher};
use crate::{
    Error, Store,
    keyspace::Revision,
    proto::etcdserverpb::{
        WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
    },
    watch::{Inbox, WatchId},
};

const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// The client is gone.
struct Gone;

pub(super) struct Session {
    store: Store,
    inbox: Arc<Inbox>,
    watches: BTreeMap<WatchId, Watcher>,
    next_id: WatchId,
    progress_wanted: bool,
    out: Sender<Result<WatchResponse, Status>>,
}

impl Session {
    pub(super) fn new(store: Store, out: Sender<Result<WatchResponse, Status>>) -> Self {
        let inbox = Arc::default();
        Self {
            store,
            inbox,
            watches: BTreeMap::new(),
            next_id: 0,
            progress_wanted: false,
            out,
        }
    }

    /// Serves the stream until its client is gone. A client that only ends its own side still
    /// gets events.
    pub(super) async fn run(mut self, mut requests: Streaming<WatchRequest>) {
        let mut ticks = tokio::time::interval(self.store.limits().progress_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let inbox = Arc::clone(&self.inbox);
        let mut asking = true;
        loop {
            let served = tokio::select! {
                () = self.out.closed() => return,
                request = requests.message(), if asking => match request {
                    Ok(Some(request)) => self.ask(request).await,
                    Ok(None) => { asking = false; Ok(()) }
                    Err(_) => return,
                },
                () = inbox.woken() => Ok(()),
                _ = ticks.tick() => self.tick().await,
            };
            if served.is_err() || self.serve().await.is_err() {
                return;
            }
        }
    }

    async fn ask(&mut self, request: WatchRequest) -> Result<(), Gone> {
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id).await,
            Some(RequestUnion::ProgressRequest(_)) => {
                // Unanswered while a watch is not where the others are, as in etcd.
                self.progress_wanted = self.all_started();
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, request: WatchCreateRequest) -> Result<(), Gone> {
        let wanted_id = request.watch_id;
        let mut watcher = Watcher::new(request);
        if let Err(reason) = self.refusal(&watcher) {
            return self.send(answer::refused(&self.store, &reason)).await;
        }
        let id = self.choose_id(wanted_id);
        let (current, result) = self
            .store
            .watch(&self.inbox, id, &watcher.range, watcher.start());
        watcher.made = current;
        if watcher.start() == 0 {
            watcher.next = current + 1;
        }
        watcher.compacted = result.is_err();
        self.watches.insert(id, watcher);
        self.send(answer::created(&self.store, id, current)).await?;
        match result {
            Ok(()) => Ok(()),
            Err(compacted) => {
                self.send(answer::compacted(&self.store, id, compacted))
                    .await
            }
        }
    }

    fn refusal(&self, watcher: &Watcher) -> Result<(), String> {
        if watcher.start() < 0 {
            return Err(Error::Compacted.to_string());
        }
        if watcher.range.is_empty() {
            return Err(EMPTY_RANGE.into());
        }
        let wanted_id = watcher.request.watch_id;
        if wanted_id != 0 && self.watches.contains_key(&wanted_id) {
            return Err(DUPLICATE_ID.into());
        }
        Ok(())
    }

    fn choose_id(&mut self, wanted: WatchId) -> WatchId {
        if wanted != 0 {
            return wanted;
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    async fn cancel(&mut self, id: WatchId) -> Result<(), Gone> {
        let Some(watcher) = self.watches.remove(&id) else {
            return Ok(());
        };
        if !watcher.compacted {
            self.store.unwatch(&self.inbox, id, &watcher.range);
        }
        self.send(answer::canceled(&self.store, id)).await
    }

    /// Gives each watch with something to read one page, then answers a progress request if
    /// nothing is left. What is left wakes the stream again, after its next request.
    async fn serve(&mut self) -> Result<(), Gone> {
        for (id, from) in self.inbox.take() {
            self.read(id, from).await?;
        }
        if self.progress_wanted
            && let Some(revision) = self.store.progress(&self.inbox)
        {
            self.progress_wanted = false;
            self.send(answer::progress(&self.store, answer::NO_WATCH, revision))
                .await?;
        }
        Ok(())
    }

    async fn read(&mut self, id: WatchId, from: Revision) -> Result<(), Gone> {
        let Some(watcher) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        let from = from.max(watcher.next);
        let (live, limits) = (from > watcher.made, watcher.page_limits(from));
        let (page, compacted) = self.store.changes(&watcher.range, from, live, limits);
        let Ok(page) = page else {
            watcher.compacted = true;
            self.store.unwatch(&self.inbox, id, &watcher.range);
            return self
                .send(answer::compacted(&self.store, id, compacted))
                .await;
        };
        watcher.next = page.next;
        if page.next <= page.current {
            self.inbox.mark(id, page.next);
        }
        let revision = answer::shown_revision(&page);
        let wanted = page.events.into_iter().filter(|event| watcher.wants(event));
        let events = wanted.map(|event| {
            let with_prev = watcher.wants_prev(&event, compacted);
            answer::event(event, with_prev)
        });
        let mut response = answer::progress(&self.store, id, revision);
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
        for part in answer::fragments(response, bytes_max) {
            self.send(part).await?;
        }
        Ok(())
    }

    /// Tells idle watches that asked for it how far they are.
    async fn tick(&mut self) -> Result<(), Gone> {
        let Some(revision) = self.store.progress(&self.inbox) else {
            return Ok(());
        };
        let mut idle = Vec::new();
        for (&id, watcher) in &mut self.watches {
            let due = watcher.idle && watcher.request.progress_notify && !watcher.compacted;
            if due && watcher.start() <= revision {
                idle.push(id);
            }
            watcher.idle = true;
        }
        for id in idle {
            self.send(answer::progress(&self.store, id, revision))
                .await?;
        }
        Ok(())
    }

    /// Whether progress can be told: every watch reads, and none waits for a revision to come.
    fn all_started(&self) -> bool {
        let current = self.store.revision();
        let started = |watcher: &Watcher| !watcher.compacted && watcher.start() <= current;
        !self.watches.is_empty() && self.watches.values().all(started)
    }

    async fn send(&self, response: WatchResponse) -> Result<(), Gone> {
        // The error's payload is the response: of no use to anyone.
        self.out.send(Ok(response)).await.or(Err(Gone))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for (&id, watcher) in self
            .watches
            .iter()
            .filter(|(_, watcher)| !watcher.compacted)
        {
            self.store.unwatch(&self.inbox, id, &watcher.range);
        }
    }
}
