//! The demand for an app's first pod: raised once, repeated while needed, closed by the first response.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use tokio::time::sleep;
use tracing::warn;

use super::{App, State};
use crate::handle::Demand;

/// A demand is repeated after this while requests are parked and no pod is ready.
const DEMAND_AGAIN: Duration = Duration::from_secs(1);
#[derive(Default)]
pub(super) struct Wake {
    /// A task repeats the demand.
    asking: bool,
    awaiting_first_byte: bool,
    first_byte: Option<Boottime>,
}

impl App {
    /// Notes that a backend's response has begun.
    pub(crate) fn answered(&self) {
        let mut state = self.state.lock();
        state.answered += 1;
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
        tokio::spawn(demand_again(Arc::downgrade(self)));
    }

    fn demand(&self) {
        let demand = Demand {
            vip: self.vip,
            at: Boottime::now(),
        };
        if let Err(error) = self.core.demands.try_send(demand) {
            warn!(vip = self.vip, %error, "demand not taken");
        }
    }

    /// Demands again when still needed; whether to look once more.
    fn still_demands(&self) -> bool {
        let mut state = self.state.lock();
        let needed = state.breaker.parked() > 0 && !state.breaker.has_backend();
        state.wake.asking = needed;
        drop(state);
        if needed {
            self.demand();
        }
        needed
    }
}

impl State {
    /// Whether a wake begins now: somebody waits, nobody can serve, nobody asked yet.
    pub(super) fn begins_to_demand(&mut self) -> bool {
        let needed = self.breaker.parked() > 0 && !self.breaker.has_backend();
        let begins = needed && !self.wake.asking;
        if begins {
            self.wake = Wake {
                asking: true,
                awaiting_first_byte: true,
                first_byte: None,
            };
        }
        begins
    }
}

async fn demand_again(app: Weak<App>) {
    loop {
        sleep(DEMAND_AGAIN).await;
        if !app.upgrade().is_some_and(|app| app.still_demands()) {
            return;
        }
    }
}
