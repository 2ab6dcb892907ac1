//! Compaction of the store: the compacted revision moves at once, the memory is freed in slices.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::time::ClockId;
use tokio::task;
use tokio_util::sync::CancellationToken;

use super::{State, Store};
use crate::{
    Error,
    durable::{Written, kind, put_number},
    keyspace::Revision,
};

/// Events that one slice frees; bounds the time for which it holds the lock to tens of microseconds,
/// about as long as it takes to wake a writer that waits for it.
const SLICE_EVENTS: usize = 128;

/// Time without the lock between two slices: a compaction takes a part of one processor, and still
/// frees hundreds of thousands of events a second. The kernel rarely deschedules a thread that has
/// just slept within its slice: its turn on the processor has begun with it.
const PAUSE: Duration = Duration::from_micros(100);

/// Time for which events below the compacted revision stay readable for synced watchers.
const TAIL_TIME: Duration = Duration::from_secs(5);

impl Store {
    /// Compacts the keyspace at a revision; returns the current revision. `physical` waits until the
    /// memory is freed, as far as no read needs it; otherwise [`crate::server::serve`] frees it in
    /// the background. Cancel safe.
    pub async fn compact(&self, revision: Revision, physical: bool) -> Result<Revision, Error> {
        let (visible, written) = self.compact_at(revision)?;
        self.settle(written).await?;
        self.shared.metrics.compactions.inc();
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

    /// Runs a part of a compaction under the lock, and records how long it held that. The memory that
    /// it freed is given back without the lock.
    fn hold<R>(&self, part: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.shared.state.write();
        let (began, cpu_began) = (Instant::now(), thread_cpu());
        let result = part(&mut state);
        let freed = state.keyspace.take_freed();
        let (cpu, held) = (thread_cpu(), began.elapsed());
        drop(state);
        let cpu = cpu.saturating_sub(cpu_began);
        self.shared.metrics.compaction_held_lock(held, cpu);
        drop(freed);
        result
    }

    /// Runs slices until one has nothing left to free, on a thread that does nothing else: it is not
    /// at the end of its turn when it takes the lock. Cancel safe: the thread ends after a slice.
    async fn in_turns(&self, slice: fn(&Self) -> bool) {
        let (store, cancelled) = (self.clone(), CancellationToken::new());
        let _guard = cancelled.clone().drop_guard();
        let turns = move || {
            while !cancelled.is_cancelled() && !slice(&store) {
                thread::sleep(PAUSE);
            }
        };
        // A panic of the thread is reported by the panic hook.
        let _ = task::spawn_blocking(turns).await;
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
                    self.in_turns(Self::drop_tail_slice).await;
                    continue;
                }
            }
            self.reclaim().await;
            tail_ends = Some(tokio::time::Instant::now() + TAIL_TIME);
        }
    }

    /// Frees the memory of compactions, as far as no read needs it. Cancel safe.
    pub(crate) async fn reclaim(&self) {
        self.in_turns(Self::reclaim_slice).await;
    }

    /// Frees one slice; returns whether there is nothing left to free.
    fn reclaim_slice(&self) -> bool {
        // Events of which the watchers are not notified yet stay, too.
        let published = self.shared.watchers.lock().published();
        self.hold(|state| {
            // Reads pin their revision under the lock: a pin that is not seen here is not older.
            let compacted = state.keyspace.compacted();
            let pinned = self.shared.pins.below(compacted).unwrap_or(Revision::MAX);
            let floor = Some(pinned.min(published));
            let done = state.keyspace.reclaim(floor, SLICE_EVENTS);
            self.update_gauges(state);
            done
        })
    }

    /// Drops one slice of the events that stayed for synced watchers; returns whether none is left.
    fn drop_tail_slice(&self) -> bool {
        self.hold(|state| {
            let done = state.keyspace.drop_tail(SLICE_EVENTS);
            self.update_gauges(state);
            done
        })
    }
}

/// Time for which the calling thread has run.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
