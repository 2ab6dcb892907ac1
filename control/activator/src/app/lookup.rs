//! Requests of a VIP without a route: parked within the same limits as others until control has answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::guard::gauge;
use super::{App, RequestRoute};
use crate::park::{LimitReached, QueueLimits, Reservation};

/// A request for a VIP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The port that was dialled.
    pub(crate) port: u16,
    /// Memory of the request while it is parked.
    pub(crate) bytes: usize,
    /// Time of its arrival.
    pub(crate) arrived: Instant,
}

/// Reasons why a request gets no route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoRoute {
    /// There is no such app.
    Absent,
    /// The request cannot be parked.
    Limit(LimitReached),
    /// Control has not answered within this time.
    Unanswered(Duration),
}

/// A request that waits for the route; dropping it ends the wait.
struct AskingRequest<'a> {
    app: &'a Arc<App>,
    bytes: usize,
    _reservation: Reservation,
}

impl Drop for AskingRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.app.state.lock();
        state.demand.asked(self.bytes);
        drop(state);
        self.app.core.metrics.parked.dec();
        self.app.core.metrics.parked_bytes.dec_by(gauge(self.bytes));
    }
}

impl App {
    /// The route, as soon as control has answered.
    pub(crate) async fn route(
        self: &Arc<Self>,
        asked: Asked,
    ) -> Result<Arc<RequestRoute>, NoRoute> {
        let mut parked = None;
        let limit = self.core.config.wake_timeout;
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            // Before the state is read, so that no answer is missed.
            answered.as_mut().enable();
            if let Some(known) = self.known() {
                return known;
            }
            if parked.is_none() {
                parked = Some(self.ask(asked).map_err(NoRoute::Limit)?);
            }
            timeout_at(asked.arrived + limit, answered)
                .await
                .map_err(|_elapsed| NoRoute::Unanswered(limit))?;
        }
    }

    /// Whether this is the app's present route.
    pub(crate) fn has_route(&self, route: &Arc<RequestRoute>) -> bool {
        let state = self.state.lock();
        let present = state.route.as_ref().filter(|_| !state.removed);
        present.is_some_and(|present| Arc::ptr_eq(present, route))
    }

    fn known(&self) -> Option<Result<Arc<RequestRoute>, NoRoute>> {
        let state = self.state.lock();
        if state.removed {
            return Some(Err(NoRoute::Absent));
        }
        state.route.clone().map(Ok)
    }

    fn ask(self: &Arc<Self>, asked: Asked) -> Result<AskingRequest<'_>, LimitReached> {
        let reservation = self.core.budget.claim(asked.bytes)?;
        let limits = QueueLimits {
            count_max: self.core.config.queue_per_app_max,
            bytes_max: self.core.config.queue_bytes_per_app_max,
        };
        let mut state = self.state.lock();
        state.demand.ask(asked.port, asked.bytes, limits)?;
        let need = state.begins_wake();
        drop(state);
        self.core.metrics.parked.inc();
        self.core.metrics.parked_bytes.inc_by(gauge(asked.bytes));
        self.raise(need);
        Ok(AskingRequest {
            app: self,
            bytes: asked.bytes,
            _reservation: reservation,
        })
    }
}
