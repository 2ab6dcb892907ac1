//! The watchers of one stream that have events to read.

use std::{collections::BTreeMap, mem, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::WatchId;
use crate::keyspace::Revision;

/// The watchers of one stream that have events to read, marked by writers and taken by the stream.
/// Its size is bounded by the number of the stream's watchers.
#[derive(Debug, Default)]
pub struct ReadySet {
    marked: Mutex<BTreeMap<WatchId, Revision>>,
    wake: Notify,
}

impl ReadySet {
    /// A number that no other ready set has while this one exists.
    pub(super) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Marks a watcher: it has events to read from a revision on. Returns whether it is the first
    /// one since the last [`take`](Self::take): then the stream must be woken.
    pub(super) fn mark(&self, id: WatchId, from: Revision) -> bool {
        let mut marked = self.marked.lock();
        let first = marked.is_empty();
        marked.insert(id, from);
        first
    }

    /// Removes the mark of a watcher.
    pub(super) fn unmark(&self, id: WatchId) {
        self.marked.lock().remove(&id);
    }

    /// Takes all marked watchers, each with the first revision to read.
    pub(super) fn take(&self) -> BTreeMap<WatchId, Revision> {
        mem::take(&mut self.marked.lock())
    }

    /// Whether no watcher is marked.
    pub(super) fn is_empty(&self) -> bool {
        self.marked.lock().is_empty()
    }

    /// Wakes the stream.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns when the stream was woken since the last return. Cancel safe.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// Streams to wake after a batch of events, each once; woken outside all locks.
#[derive(Debug, Default)]
#[must_use = "a stream that is not woken does not read its events"]
pub struct Wakes(pub(super) Vec<Arc<ReadySet>>);

impl Wakes {
    pub(super) fn push(&mut self, stream: Arc<ReadySet>) {
        self.0.push(stream);
    }

    /// Wakes the streams.
    pub fn wake(self) {
        for stream in self.0 {
            stream.wake();
        }
    }
}
