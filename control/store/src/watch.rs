//! Tells watch streams which of their watches have something to read. Nothing is queued here: a
//! stream reads the history itself, at its own pace, so a slow one delays nobody.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::keyspace::{Event, KeyRange, Revision};

/// Number of a watch within its stream.
pub type WatchId = i64;

/// Where one stream learns that it has something to read. Its size is bounded by the number of the
/// stream's watches.
#[derive(Debug, Default)]
pub struct Inbox {
    pending: Mutex<BTreeMap<WatchId, Revision>>,
    wake: Notify,
}

impl Inbox {
    /// Notes that a watch has something to read from a revision on.
    pub fn mark(&self, id: WatchId, from: Revision) {
        let mut pending = self.pending.lock();
        pending
            .entry(id)
            .and_modify(|first| *first = from.min(*first))
            .or_insert(from);
        drop(pending);
        self.wake.notify_one();
    }

    /// Takes what is pending: watches and the first revision each has to read.
    pub fn take(&self) -> BTreeMap<WatchId, Revision> {
        std::mem::take(&mut self.pending.lock())
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.lock().is_empty()
    }

    /// Returns when something was marked since the last return. Cancellation loses nothing.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// One watch of one stream.
#[derive(Clone, Debug)]
pub struct Interest {
    /// The stream to tell.
    pub inbox: Arc<Inbox>,
    /// The watch within it.
    pub id: WatchId,
    /// The keys it is about.
    pub range: KeyRange,
    /// Changes before this revision are not its business.
    pub from: Revision,
}

impl Interest {
    fn is(&self, inbox: &Arc<Inbox>, id: WatchId) -> bool {
        self.id == id && Arc::ptr_eq(&self.inbox, inbox)
    }

    fn tell(&self, event: &Event) {
        if event.revision >= self.from {
            self.inbox.mark(self.id, event.revision);
        }
    }
}

/// All watches: those of one key are found by it, those of ranges are looked through.
#[derive(Debug, Default)]
pub struct Hub {
    of_one_key: HashMap<Bytes, Vec<Interest>>,
    of_ranges: Vec<Interest>,
    count: usize,
}

impl Hub {
    /// Number of watches.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no watch.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a watch.
    pub fn add(&mut self, interest: Interest) {
        self.count += 1;
        match &interest.range {
            KeyRange::One(key) => {
                self.of_one_key
                    .entry(key.clone())
                    .or_default()
                    .push(interest);
            }
            KeyRange::Span(..) | KeyRange::From(_) => self.of_ranges.push(interest),
        }
    }

    /// Removes a watch.
    pub fn remove(&mut self, inbox: &Arc<Inbox>, id: WatchId, range: &KeyRange) {
        let of_ranges = &mut self.of_ranges;
        let list = match range {
            KeyRange::One(key) => self.of_one_key.get_mut(key),
            KeyRange::Span(..) | KeyRange::From(_) => Some(of_ranges),
        };
        let Some(list) = list else { return };
        if let Some(position) = list.iter().position(|interest| interest.is(inbox, id)) {
            list.swap_remove(position);
            self.count -= 1;
        }
        if let KeyRange::One(key) = range
            && self.of_one_key.get(key).is_some_and(Vec::is_empty)
        {
            self.of_one_key.remove(key);
        }
    }

    /// Tells the streams of a new revision's changes.
    pub fn publish(&self, events: &[Event]) {
        for event in events {
            let key = &event.kv.key;
            for interest in self.of_one_key.get(key).into_iter().flatten() {
                interest.tell(event);
            }
            for interest in self.of_ranges.iter().filter(|i| i.range.contains(key)) {
                interest.tell(event);
            }
        }
    }
}
