//! The demand for an app's first pod: raised once, repeated while needed, and the time of the first response.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use tokio::time::sleep;
use tracing::warn;

use super::{App, State};
use crate::report::Demand;

/// Interval of repeated demands, while requests are parked and no pod is ready.
const DEMAND_PERIOD: Duration = Duration::from_secs(1);

/// The state of an app's wake.
#[derive(Default)]
pub(super) struct Wake {
    /// A task repeats the demand.
    repeating: bool,
    awaiting_first_byte: bool,
    first_byte: Option<Boottime>,
}

impl App {
    /// Records that a backend's response has begun.
    pub(crate) fn response_begun(&self) {
        let mut state = self.state.lock();
        state.responses += 1;
        if state.wake.awaiting_first_byte {
            state.wake.awaiting_first_byte = false;
            state.wake.first_byte = Some(Boottime::now());
        }
    }

    pub(crate) fn first_byte(&self) -> Option<Boottime> {
        self.state.lock().wake.first_byte
    }

    pub(super) fn begin_demand(self: &Arc<Self>) {
        self.demand();
        tokio::spawn(repeat_demand(Arc::downgrade(self)));
    }

    fn demand(&self) {
        let demand = Demand {
            vip: self.vip,
            at: Boottime::now(),
        };
        if let Err(error) = self.core.demands.try_send(demand) {
            warn!(vip = self.vip, %error, "demand not delivered");
        }
    }

    /// Repeats the demand if it is still needed; returns whether it is.
    fn repeat_if_needed(&self) -> bool {
        let mut state = self.state.lock();
        let needed = state.breaker.parked() > 0 && !state.breaker.has_backend();
        state.wake.repeating = needed;
        drop(state);
        if needed {
            self.demand();
        }
        needed
    }
}

impl State {
    /// Whether a wake begins now: a request is parked, there is no backend, and no demand has been raised.
    pub(super) fn begins_wake(&mut self) -> bool {
        let needed = self.breaker.parked() > 0 && !self.breaker.has_backend();
        let begins = needed && !self.wake.repeating;
        if begins {
            self.wake = Wake {
                repeating: true,
                awaiting_first_byte: true,
                first_byte: None,
            };
        }
        begins
    }
}

async fn repeat_demand(app: Weak<App>) {
    loop {
        sleep(DEMAND_PERIOD).await;
        if !app.upgrade().is_some_and(|app| app.repeat_if_needed()) {
            return;
        }
    }
}
