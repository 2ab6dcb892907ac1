//! The watches of the store: registration of watchers, and reads of their events.

use std::sync::Arc;

use super::Store;
use crate::{
    Error,
    keyspace::{KeyRange, Page, PageLimits, Revision},
    watch::{ReadySet, Registration, WatchId},
};

impl Store {
    /// Registers a watcher; returns the current revision, and the compacted revision as the error if
    /// the watch starts below it. A start of 0 is the next revision.
    pub(crate) fn watch(
        &self,
        ready_set: &Arc<ReadySet>,
        id: WatchId,
        range: &KeyRange,
        start: Revision,
    ) -> (Revision, Result<(), Revision>) {
        let mut state = self.shared.state.write();
        let (current, compacted) = (state.keyspace.current(), state.keyspace.compacted());
        if start > 0 && start < compacted {
            return (current, Err(compacted));
        }
        let from = if start > 0 { start } else { current + 1 };
        state.watchers.add(Registration {
            ready_set: Arc::clone(ready_set),
            id,
            range: range.clone(),
            from,
        });
        if from <= current {
            ready_set.mark(id, from);
        }
        self.update_gauges(&state);
        (current, Ok(()))
    }

    /// Removes a watcher.
    pub(crate) fn cancel_watch(&self, ready_set: &Arc<ReadySet>, id: WatchId, range: &KeyRange) {
        let mut state = self.shared.state.write();
        state.watchers.remove(ready_set, id, range);
        self.update_gauges(&state);
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

    /// The current revision, if the stream has read all events up to it.
    pub(crate) fn progress(&self, ready_set: &ReadySet) -> Option<Revision> {
        // Watchers are marked under the write lock, so the set and the revision are consistent.
        let state = self.shared.state.read();
        ready_set.is_empty().then(|| state.keyspace.current())
    }
}
