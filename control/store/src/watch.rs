//! Notification of watch streams: each is notified of the watchers that have events to read. No
//! events are queued: a stream reads them from the event log at its own pace, so a slow stream
//! delays no write and no other stream.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::keyspace::{Event, KeyRange, Revision};

/// ID of a watcher, unique within its stream.
pub type WatchId = i64;

/// The watchers of one stream that have events to read, marked by writers and taken by the stream.
/// Its size is bounded by the number of the stream's watchers.
#[derive(Debug, Default)]
pub struct ReadySet {
    pending: Mutex<BTreeMap<WatchId, Revision>>,
    wake: Notify,
}

impl ReadySet {
    /// Marks a watcher: it has events to read from a revision on.
    pub fn mark(&self, id: WatchId, from: Revision) {
        let mut pending = self.pending.lock();
        pending
            .entry(id)
            .and_modify(|first| *first = from.min(*first))
            .or_insert(from);
        drop(pending);
        self.wake.notify_one();
    }

    /// Takes all marked watchers, each with the first revision to read.
    pub fn take(&self) -> BTreeMap<WatchId, Revision> {
        std::mem::take(&mut self.pending.lock())
    }

    /// Whether no watcher is marked.
    pub fn is_empty(&self) -> bool {
        self.pending.lock().is_empty()
    }

    /// Returns when a watcher was marked since the last return. Cancel safe.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

/// The registration of one watcher of one stream.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The ready set of the watcher's stream.
    pub ready_set: Arc<ReadySet>,
    /// The watcher within the stream.
    pub id: WatchId,
    /// The watched keys.
    pub range: KeyRange,
    /// The watcher gets no events below this revision.
    pub from: Revision,
}

impl Registration {
    fn is(&self, ready_set: &Arc<ReadySet>, id: WatchId) -> bool {
        self.id == id && Arc::ptr_eq(&self.ready_set, ready_set)
    }

    fn notify(&self, event: &Event) {
        if event.revision >= self.from {
            self.ready_set.mark(self.id, event.revision);
        }
    }
}

/// All watchers: those of one key in a hash map, those of ranges in a list that every event scans.
#[derive(Debug, Default)]
pub struct WatcherGroup {
    key_watchers: HashMap<Bytes, Vec<Registration>>,
    range_watchers: Vec<Registration>,
    count: usize,
}

impl WatcherGroup {
    /// Number of watchers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no watcher.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Registers a watcher.
    pub fn add(&mut self, registration: Registration) {
        self.count += 1;
        match &registration.range {
            KeyRange::One(key) => {
                self.key_watchers
                    .entry(key.clone())
                    .or_default()
                    .push(registration);
            }
            KeyRange::Span(..) | KeyRange::From(_) => self.range_watchers.push(registration),
        }
    }

    /// Removes a watcher.
    pub fn remove(&mut self, ready_set: &Arc<ReadySet>, id: WatchId, range: &KeyRange) {
        let range_watchers = &mut self.range_watchers;
        let list = match range {
            KeyRange::One(key) => self.key_watchers.get_mut(key),
            KeyRange::Span(..) | KeyRange::From(_) => Some(range_watchers),
        };
        let Some(list) = list else { return };
        if let Some(position) = list
            .iter()
            .position(|registration| registration.is(ready_set, id))
        {
            list.swap_remove(position);
            self.count -= 1;
        }
        if let KeyRange::One(key) = range
            && self.key_watchers.get(key).is_some_and(Vec::is_empty)
        {
            self.key_watchers.remove(key);
        }
    }

    /// Marks every watcher that watches one of a new revision's events.
    pub fn notify(&self, events: &[Event]) {
        for event in events {
            let key = &event.kv.key;
            for registration in self.key_watchers.get(key).into_iter().flatten() {
                registration.notify(event);
            }
            let range_watchers = self.range_watchers.iter();
            for registration in range_watchers.filter(|watcher| watcher.range.contains(key)) {
                registration.notify(event);
            }
        }
    }
}
