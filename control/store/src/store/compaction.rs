//! Compaction of the store: the compacted revision moves at once, the memory is freed in slices.

use std::time::{Duration, Instant};

use super::{State, Store};
use crate::{
    Error,
    durable::{Written, kind, put_number},
    keyspace::Revision,
};

/// Events that one slice frees; bounds the time for which it holds the lock to a fraction of a
/// millisecond.
const SLICE_EVENTS: usize = 256;

/// Time for which events below the compacted revision stay readable for synced watchers.
const TAIL_TIME: Duration = Duration::from_secs(5);

impl Store {
    /// Compacts the keyspace at a revision; returns the current revision. `physical` waits until the
    /// memory is freed, as far as no read needs it; otherwise [`crate::server::serve`] frees it in
    /// the background. Cancel safe.
    pub async fn compact(&self, revision: Revision, physical: bool) -> Result<Revision, Error> {
        let (visible, written) = self.compact_at(revision)?;
        self.settle(written).await?;
        self.shared.snapshot_due.notify_one();
        if physical {
            self.reclaim().await;
        } else {
            self.reclaim_slice();
        }
        self.shared.compacted.notify_one();
        Ok(visible)
    }

    fn compact_at(&self, revision: Revision) -> Result<(Revision, Written), Error> {
        self.check_journal()?;
        // The watchers are marked first: a compaction drops events.
        self.publish();
        let visible = self.revision();
        let written = self.hold(|state| {
            state.alarms.check_write()?;
            state.keyspace.compact(revision, visible)?;
            let written = self.record((kind::COMPACT, &*state), |out| put_number(out, revision));
            Ok::<_, Error>(written)
        })?;
        Ok((visible, written))
    }

    /// Runs a part of a compaction under the lock, and records how long it held that.
    fn hold<R>(&self, part: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.shared.state.write();
        let began = Instant::now();
        let result = part(&mut state);
        drop(state);
        self.shared.metrics.compaction_held_lock(began.elapsed());
        result
    }

    /// Frees the memory of compactions, and some time after each the events that stayed for synced
    /// watchers; never returns. Cancel safe.
    pub(crate) async fn reclaim_compacted(&self) {
        let mut tail_ends = None;
        loop {
            let tail_end = async {
                match tail_ends {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shared.compacted.notified() => {}
                () = self.shared.pins.released() => {}
                () = tail_end => {
                    tail_ends = None;
                    self.drop_tail().await;
                    continue;
                }
            }
            self.reclaim().await;
            tail_ends = Some(tokio::time::Instant::now() + TAIL_TIME);
        }
    }

    async fn drop_tail(&self) {
        while !self.hold(|state| {
            let done = state.keyspace.drop_tail(SLICE_EVENTS);
            self.update_gauges(state);
            done
        }) {
            tokio::task::yield_now().await;
        }
    }

    async fn reclaim(&self) {
        while !self.reclaim_slice() {
            // Other tasks run between two slices.
            tokio::task::yield_now().await;
        }
    }

    /// Frees one slice; returns whether there is nothing left to free.
    fn reclaim_slice(&self) -> bool {
        // Events of which the watchers are not notified yet stay, too.
        let published = self.shared.watchers.lock().published();
        self.hold(|state| {
            // Reads pin their revision under the lock: a pin that is not seen here is not older.
            let pinned = self.shared.pins.oldest().unwrap_or(Revision::MAX);
            let floor = Some(pinned.min(published));
            let done = state.keyspace.reclaim(floor, SLICE_EVENTS);
            self.update_gauges(state);
            done
        })
    }
}
