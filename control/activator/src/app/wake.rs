//! An app's demand as reports: raised at once, repeated while needed, and the first response.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use tokio::time::sleep;
use tracing::warn;

use super::{App, State};
use crate::demand::{Begun, Need};
use crate::report::{Report, Unanswered};

/// Interval of repeated wants and demands.
const DEMAND_PERIOD: Duration = Duration::from_secs(1);

impl App {
    /// Records that a backend's response has begun.
    pub(crate) fn response_begun(&self) {
        let mut state = self.state.lock();
        state.responses += 1;
        if state.demand.responded() {
            drop(state);
            self.report(Report::FirstByte {
                vip: self.vip,
                at: Boottime::now(),
            });
        }
    }

    /// Records that a request has ended without a response. If no other one is parked, no response follows the need that it had
    /// brought: further requests are of another need.
    pub(crate) fn unanswered(&self, how: Unanswered) {
        let mut state = self.state.lock();
        if state.breaker.parked() > 0 {
            return;
        }
        // A refused request raised no need.
        let is_end = match how {
            Unanswered::Refused => !state.breaker.has_backend(),
            _ => state.demand.unanswered(),
        };
        drop(state);
        if is_end {
            let (vip, at) = (self.vip, Boottime::now());
            self.report(Report::Unanswered { vip, at, how });
        }
    }

    /// Raises a need at once, and every second while it lasts.
    pub(super) fn raise(self: &Arc<Self>, begun: Option<Begun>) {
        let Some(Begun { need, repeats }) = begun else {
            return;
        };
        self.demand(need);
        if !repeats {
            tokio::spawn(repeat_demand(Arc::downgrade(self)));
        }
    }

    fn demand(&self, need: Need) {
        let (vip, at) = (self.vip, Boottime::now());
        self.report(match need {
            Need::Route { port } => Report::Want { vip, port, at },
            Need::Pod => Report::Demand { vip, at },
        });
    }

    fn report(&self, report: Report) {
        if let Err(error) = self.core.reports.try_send(report) {
            warn!(vip = self.vip, %error, "report not delivered");
        }
    }

    /// Repeats the need if it lasts; returns whether it does.
    fn repeat_if_needed(&self) -> bool {
        let mut state = self.state.lock();
        let need = state.need();
        let repeated = state.demand.repeat(need);
        drop(state);
        repeated.map(|need| self.demand(need)).is_some()
    }
}

impl State {
    fn need(&self) -> Option<Need> {
        if self.removed {
            return None;
        }
        let stranded = self.breaker.parked() > 0 && !self.breaker.has_backend();
        self.demand.need(self.route.is_some(), stranded)
    }

    /// The need that begins now, if it was not raised yet.
    pub(super) fn begins_wake(&mut self) -> Option<Begun> {
        let need = self.need();
        self.demand.begin(need)
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
