//! Notification of watchers: the visible events are matched with the watchers once, outside the
//! write lock. The first stream that reads an event encodes it, for all of them.

use std::sync::atomic::{Ordering, fence};

use super::Store;
use crate::{
    keyspace::Revision,
    watch::{Wakes, Watchers},
};

/// Events that one slice matches; bounds the time for which it holds the lock of the state.
const SLICE_EVENTS: usize = 256;

impl Store {
    /// Marks the watchers of all visible events, and wakes their streams. Called after the frontier
    /// has moved. One caller does this for all: the others return at once.
    pub(super) fn publish(&self) {
        loop {
            // With the fence below: if the lock is taken, its owner sees the moved frontier when it
            // looks again after it has released the lock.
            fence(Ordering::SeqCst);
            let Some(publishing) = self.shared.publishing.try_lock() else {
                return;
            };
            let published = self.publish_visible();
            drop(publishing);
            fence(Ordering::SeqCst);
            if published >= self.shared.frontier.visible() {
                return;
            }
        }
    }

    /// Marks the watchers of all visible events, in slices of all locks; returns the revision.
    fn publish_visible(&self) -> Revision {
        let visible = self.shared.frontier.visible();
        loop {
            let mut watchers = self.shared.watchers.lock();
            let mut wakes = Wakes::default();
            let done = self.publish_slice(&mut watchers, visible, &mut wakes);
            drop(watchers);
            wakes.wake();
            if done {
                return visible;
            }
        }
    }

    /// Marks the watchers of all visible events under the lock of the watchers; returns the revision.
    pub(super) fn catch_up(&self, watchers: &mut Watchers, wakes: &mut Wakes) -> Revision {
        let visible = self.shared.frontier.visible();
        while !self.publish_slice(watchers, visible, wakes) {}
        watchers.published()
    }

    /// Marks the watchers of the next events; returns whether all events up to `upto` are published.
    fn publish_slice(&self, watchers: &mut Watchers, upto: Revision, wakes: &mut Wakes) -> bool {
        if watchers.published() >= upto {
            return true;
        }
        if !watchers.is_empty() && self.mark_slice(watchers, upto, wakes) == SLICE_EVENTS {
            return false;
        }
        watchers.set_published(upto);
        true
    }

    /// Marks the watchers of the next events up to a revision; returns the number of events.
    fn mark_slice(&self, watchers: &mut Watchers, upto: Revision, wakes: &mut Wakes) -> usize {
        let state = self.shared.state.read();
        let published = watchers.published();
        let cursor = watchers.cursor();
        let mut cursor = cursor.unwrap_or_else(|| state.keyspace.cursor_after(published));
        let mut recent = self.shared.recent.write();
        let mut count = 0;
        let events = state.keyspace.events_at(&mut cursor, upto);
        for (position, event) in events.take(SLICE_EVENTS) {
            count += 1;
            if watchers.mark(event.key(), event.revision(), wakes) {
                recent.push(event.revision(), position);
            }
        }
        if count < SLICE_EVENTS {
            recent.publish(upto);
        }
        watchers.set_cursor(cursor);
        count
    }
}
