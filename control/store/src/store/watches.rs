//! The watches of the store: registration of watchers, their notification, and reads of their events.

use std::collections::BTreeMap;

use super::Store;
use crate::{
    Error,
    keyspace::{KeyRange, Page, PageLimits, Revision},
    watch::{ReadySet, Registration, Wakes, WatchId, Watchers},
};

impl Store {
    /// Marks the watchers of all events up to a revision, and wakes their streams.
    pub(super) fn publish(&self, revision: Revision) {
        let mut watchers = self.shared.watchers.lock();
        if watchers.published() >= revision {
            return;
        }
        let wakes = self.catch_up(&mut watchers);
        drop(watchers);
        wakes.wake();
    }

    /// Marks the watchers of all events so far.
    fn catch_up(&self, watchers: &mut Watchers) -> Wakes {
        let state = self.shared.state.read();
        let current = state.keyspace.current();
        if watchers.is_empty() {
            return watchers.publish(current, std::iter::empty());
        }
        let events = state.keyspace.written(watchers.published());
        watchers.publish(current, events)
    }

    /// Registers a watcher, whose start of 0 becomes the next revision; returns the current revision,
    /// and the compacted revision as the error if the watch starts below it.
    pub(crate) fn watch(
        &self,
        registration: &mut Registration,
    ) -> (Revision, Result<(), Revision>) {
        let mut watchers = self.shared.watchers.lock();
        let wakes = self.catch_up(&mut watchers);
        let current = watchers.published();
        let compacted = self.shared.state.read().keyspace.compacted();
        let refused = registration.start > 0 && registration.start < compacted;
        if !refused {
            if registration.start == 0 {
                registration.start = current + 1;
            }
            watchers.register(registration);
            self.update_watcher_gauge(&watchers);
        }
        drop(watchers);
        wakes.wake();
        (current, if refused { Err(compacted) } else { Ok(()) })
    }

    /// Removes a watcher.
    pub(crate) fn cancel_watch(&self, registration: &Registration) {
        let mut watchers = self.shared.watchers.lock();
        watchers.unregister(registration);
        self.update_watcher_gauge(&watchers);
    }

    fn update_watcher_gauge(&self, watchers: &Watchers) {
        let count = i64::try_from(watchers.len()).unwrap_or(i64::MAX);
        self.shared.metrics.watchers.set(count);
    }

    /// Takes the watchers of a stream that have events to read, each with the first revision to read.
    pub(crate) fn take_ready<'a>(
        &self,
        ready_set: &ReadySet,
        registration: impl Fn(WatchId) -> Option<&'a Registration>,
    ) -> BTreeMap<WatchId, Revision> {
        let mut watchers = self.shared.watchers.lock();
        watchers.take(ready_set, registration)
    }

    /// A page of events for a watcher, and the compacted revision.
    pub(crate) fn events(
        &self,
        range: &KeyRange,
        from: Revision,
        synced: bool,
        limits: PageLimits,
    ) -> (Result<Page, Error>, Revision) {
        let state = self.shared.state.read();
        let page = state.keyspace.events(range, from, synced, limits);
        (page, state.keyspace.compacted())
    }

    /// The current revision, if none of the stream's watchers has events to read.
    pub(crate) fn progress(&self, ready_set: &ReadySet) -> Option<Revision> {
        let mut watchers = self.shared.watchers.lock();
        let wakes = self.catch_up(&mut watchers);
        let progress = watchers.progress(ready_set);
        drop(watchers);
        wakes.wake();
        progress
    }
}
