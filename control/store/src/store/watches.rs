//! The watches of the store: registration of watchers, and reads of their events.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use super::Store;
use crate::{
    keyspace::{EventQuery, KeyRange, Page, PageLimits, Revision},
    watch::{ReadySet, RecentRead, Registration, Wakes, WatchId, Watchers},
};

/// A watcher's read of its next page.
#[derive(Debug)]
pub(crate) struct PageRead<'a> {
    /// The watched keys.
    pub(crate) range: &'a KeyRange,
    /// The first revision to read.
    pub(crate) from: Revision,
    /// The store's revision when the watcher was created; it is synced from the next one on.
    pub(crate) created_revision: Revision,
    /// Whether events carry the key before the event.
    pub(crate) prev_kv: bool,
    /// Limits of the page.
    pub(crate) limits: PageLimits,
}

impl Store {
    /// Registers a watcher, whose start of 0 becomes the next revision; returns the current revision,
    /// and the compacted revision as the error if the watch starts below it.
    pub(crate) fn watch(
        &self,
        registration: &mut Registration,
    ) -> (Revision, Result<(), Revision>) {
        let mut watchers = self.shared.watchers.lock();
        let mut wakes = Wakes::default();
        let current = self.catch_up(&mut watchers, &mut wakes);
        let compacted = self.watchable(registration);
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

    /// The oldest revision from which a watcher can read.
    fn watchable(&self, registration: &Registration) -> Revision {
        let compacted = self.shared.state.read().keyspace.watchable();
        let lost = self.shared.lost.floor(&registration.range);
        lost.map_or(compacted, |floor| compacted.max(floor + 1))
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
        self.shared
            .used
            .watches
            .store(watchers.bytes(), Ordering::Relaxed);
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

    /// A page of visible events for a watcher; the oldest revision that can be watched as the error.
    pub(crate) fn events(&self, read: &PageRead<'_>) -> Result<Page, Revision> {
        let synced = read.from > read.created_revision;
        if synced && let Some(page) = self.recent_events(read) {
            return Ok(page);
        }
        let state = self.shared.state.read();
        let compacted = state.keyspace.compacted();
        let query = EventQuery {
            range: read.range,
            from: read.from,
            upto: self.shared.frontier.visible(),
            synced,
            // Not if it was compacted before the watcher was synced.
            prev_above: if read.prev_kv {
                read.created_revision.min(compacted)
            } else {
                Revision::MAX
            },
            limits: read.limits,
        };
        let page = state.keyspace.events(query);
        page.map_err(|_compacted| {
            self.shared.metrics.watchers_lost.inc();
            state.keyspace.watchable()
        })
    }

    fn recent_events(&self, read: &PageRead<'_>) -> Option<Page> {
        while self.shared.recent.read().must_encode(read.from) {
            let state = self.shared.state.read();
            let mut recent = self.shared.recent.write();
            recent.encode(|position| Some(state.keyspace.event_at(position)?.parts(true)));
        }
        self.shared.recent.read().page(RecentRead {
            range: read.range,
            from: read.from,
            prev_kv: read.prev_kv,
            limits: read.limits,
        })
    }

    /// The current revision, if none of the stream's watchers has events to read.
    pub(crate) fn progress(&self, ready_set: &ReadySet) -> Option<Revision> {
        let mut watchers = self.shared.watchers.lock();
        let mut wakes = Wakes::default();
        self.catch_up(&mut watchers, &mut wakes);
        let progress = watchers.progress(ready_set);
        drop(watchers);
        wakes.wake();
        progress
    }
}
