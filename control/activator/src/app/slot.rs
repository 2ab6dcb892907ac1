//! What a request holds of its app: a place in line, a slot, an entry in the load. Each ends by its drop.

use std::sync::Arc;

use dormouse_fleet::clock::Boottime;
use dormouse_proxy::Backend;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{App, NoSlot};
use crate::park::{Share, Ticket};

/// One slot at one backend, until dropped.
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
            "a slot of VIP {} at {}",
            self.app.vip,
            self.backend.address()
        )
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.app.give_back(self.backend.address());
    }
}

/// One request that the app's load counts, until dropped.
pub(crate) struct Visit {
    pub(super) app: Arc<App>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.app.state.lock().load.leave(Boottime::now());
    }
}

/// A place in line, until dropped.
pub(super) struct Parking {
    app: Arc<App>,
    ticket: Ticket,
    granted: oneshot::Receiver<Grant>,
    since: Instant,
    bytes: usize,
    _share: Share,
}

impl Parking {
    pub(super) fn new(
        app: &Arc<App>,
        ticket: Ticket,
        bytes: usize,
        granted: oneshot::Receiver<Grant>,
        share: Share,
    ) -> Self {
        app.core.metrics.parked.inc();
        app.core.metrics.parked_bytes.inc_by(gauge(bytes));
        Self {
            app: Arc::clone(app),
            ticket,
            granted,
            since: Instant::now(),
            bytes,
            _share: share,
        }
    }

    pub(super) async fn granted(&mut self) -> Result<Grant, NoSlot> {
        let granted = (&mut self.granted).await;
        self.app
            .core
            .metrics
            .park_duration
            .observe(self.since.elapsed().as_secs_f64());
        // The waiter's other half is dropped only with the app.
        granted.map_err(|_gone| NoSlot::Removed)
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        // Out of the line first: a slot granted meanwhile is in the channel and goes back with it.
        drop(self.app.state.lock().breaker.give_up(self.ticket));
        self.app.core.metrics.parked.dec();
        self.app.core.metrics.parked_bytes.dec_by(gauge(self.bytes));
    }
}

fn gauge(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
