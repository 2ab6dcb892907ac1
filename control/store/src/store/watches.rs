//! The store's side of watches: who is told, and what is read.

use std::sync::Arc;

use super::Store;
use crate::{
    Error,
    keyspace::{KeyRange, Page, PageLimits, Revision},
    watch::{Inbox, Interest, WatchId},
};

impl Store {
    /// Adds a watch and returns the current revision, or, with it, the compacted one if the watch
    /// asks for less. A start of 0 is the next revision.
    pub(crate) fn watch(
        &self,
        inbox: &Arc<Inbox>,
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
        state.hub.add(Interest {
            inbox: Arc::clone(inbox),
            id,
            range: range.clone(),
            from,
        });
        if from <= current {
            inbox.mark(id, from);
        }
        self.observe(&state);
        (current, Ok(()))
    }

    /// Removes a watch.
    pub(crate) fn unwatch(&self, inbox: &Arc<Inbox>, id: WatchId, range: &KeyRange) {
        let mut state = self.shared.state.write();
        state.hub.remove(inbox, id, range);
        self.observe(&state);
    }

    /// A page of history and the compacted revision; refused, only the latter.
    pub(crate) fn changes(
        &self,
        range: &KeyRange,
        from: Revision,
        live: bool,
        limits: PageLimits,
    ) -> (Result<Page, Error>, Revision) {
        let state = self.shared.state.read();
        let page = state.keyspace.changes(range, from, live, limits);
        (page, state.keyspace.compacted())
    }

    /// The current revision, if the stream has nothing to read up to it.
    pub(crate) fn progress(&self, inbox: &Inbox) -> Option<Revision> {
        // Marks are made under the write lock, so both are of one moment.
        let state = self.shared.state.read();
        inbox.is_empty().then(|| state.keyspace.current())
    }
}
