//! Guards of a request's claims on its app: the slot, the place in the queue, and the count in the load. Dropping a guard
//! releases the claim.

use std::sync::Arc;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::Backend;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{App, Claim, NoSlot};
use crate::park::Reservation;
use crate::report::Unanswered;

/// A slot of one backend.
pub(crate) struct Grant {
    pub(super) app: Arc<App>,
    pub(super) backend: Arc<Backend>,
}

impl Grant {
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "slot of VIP {} at {}",
            self.app.vip,
            self.backend.address()
        )
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.app.release(self.backend.address());
    }
}

/// A request that the app's load counts.
pub(crate) struct CountedRequest {
    pub(super) app: Arc<App>,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.app.state.lock().load.leave(Boottime::now());
    }
}

/// A request in the queue.
pub(super) struct ParkedRequest {
    pub(super) app: Arc<App>,
    pub(super) claim: Claim,
    pub(super) granted: oneshot::Receiver<Grant>,
    pub(super) since: Instant,
    /// How the request is unanswered if it ends now; none: it was granted a slot, or its app was removed.
    pub(super) unanswered: Option<Unanswered>,
    pub(super) _reservation: Reservation,
}

impl ParkedRequest {
    /// Counts the request in the metrics; its drop subtracts it.
    pub(super) fn counted(self) -> Self {
        let metrics = &self.app.core.metrics;
        metrics.parked.inc();
        metrics.parked_bytes.inc_by(gauge(self.claim.bytes));
        self
    }

    pub(super) async fn granted(&mut self) -> Result<Grant, NoSlot> {
        let granted = self.outcome().await;
        self.unanswered = match &granted {
            Ok(_) | Err(NoSlot::Removed | NoSlot::Limit(_)) => None,
            Err(NoSlot::NotReady(_)) => Some(Unanswered::TimedOut),
            Err(NoSlot::Failing(_)) => Some(Unanswered::Failed),
        };
        let waited = self.since.elapsed().as_secs_f64();
        self.app.core.metrics.park_duration.observe(waited);
        granted
    }

    /// Waits for the slot. At the end of the wake timeout the app has a pod, whose slots are in use, or the request was parked for long
    /// enough; so it is while the app loses its pods later.
    async fn outcome(&mut self) -> Result<Grant, NoSlot> {
        let mut deadline = self.claim.arrived + self.claim.wake_timeout;
        loop {
            match timeout_at(deadline, &mut self.granted).await {
                Ok(Ok(grant)) => return Ok(grant),
                Ok(Err(_unparked)) => return Err(self.app.unparked()),
                Err(_elapsed) => match self.app.not_ready() {
                    Some(reason) => return Err(reason),
                    None => deadline = Instant::now() + self.claim.wake_timeout,
                },
            }
        }
    }
}

impl Drop for ParkedRequest {
    fn drop(&mut self) {
        // Removed from the queue first: a slot granted before is in the channel and is released with it.
        drop(self.app.state.lock().breaker.unpark(self.claim.ticket));
        if let Some(how) = self.unanswered {
            self.app.unanswered(how);
        }
        let metrics = &self.app.core.metrics;
        metrics.parked.dec();
        metrics.parked_bytes.dec_by(gauge(self.claim.bytes));
    }
}

pub(super) fn gauge(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
