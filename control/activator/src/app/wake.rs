//! An app's demand as reports: raised at once, repeated while needed, and the first response.

use std::net::SocketAddrV6;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{App, State};
use crate::demand::{Begun, Need};
use crate::report::{Fault, FaultKind, Report, Unanswered};

/// Interval of repeated wants and demands.
const DEMAND_PERIOD: Duration = Duration::from_secs(1);

impl App {
    /// Records that a backend's response has begun.
    pub(crate) fn response_begun(&self, pod: SocketAddrV6) {
        let (vip, at) = (self.vip, Boottime::now());
        let mut state = self.state.lock();
        state.responses += 1;
        let (is_first, is_well) = (state.demand.responded(), state.answers.answered(pod, at));
        drop(state);
        if is_first {
            self.report(Report::FirstByte { vip, at });
        }
        if is_well {
            let fault = None;
            self.report(Report::Answer {
                vip,
                pod,
                at,
                fault,
            });
        }
    }

    /// Records that a backend has failed a request.
    pub(crate) fn failed(&self, pod: SocketAddrV6, fault: Fault) {
        let (vip, at) = (self.vip, Boottime::now());
        let mut state = self.state.lock();
        let is_news = state.backends.contains_key(&pod) && state.answers.failed(pod, at);
        drop(state);
        if is_news {
            let fault = Some(fault);
            self.report(Report::Answer {
                vip,
                pod,
                at,
                fault,
            });
        }
    }

    /// Records that the client of a request has gone which a backend had for this long. The backend failed it if that is longer
    /// than clients wait for a pod.
    fn given_up(&self, pod: SocketAddrV6, waited: Duration, patience: Duration) {
        if waited >= patience {
            let waited = Duration::from_secs(waited.as_secs());
            let message = format!("had not responded when the client gave up after {waited:?}");
            let kind = FaultKind::NoResponse;
            self.failed(pod, Fault { kind, message });
        }
        // This request is still counted.
        if self.state.lock().load.in_progress() <= 1 {
            self.unanswered(Unanswered::Abandoned);
        }
    }

    /// Records that a request has ended without a response. If no other one is parked, no response follows the need that it had
    /// brought: further requests are of another need.
    pub(crate) fn unanswered(&self, how: Unanswered) {
        let mut state = self.state.lock();
        if state.breaker.parked() > 0 {
            return;
        }
        // A refused request raised no need: it is an end by itself.
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

/// A request at a backend. If it is dropped before its end, its client has gone.
pub(crate) struct SentRequest<'a> {
    app: &'a App,
    pod: SocketAddrV6,
    since: Instant,
    patience: Duration,
    has_ended: bool,
}

impl<'a> SentRequest<'a> {
    /// `patience`: how long clients wait for a pod.
    pub(crate) fn new(app: &'a App, pod: SocketAddrV6, patience: Duration) -> Self {
        Self {
            app,
            pod,
            since: Instant::now(),
            patience,
            has_ended: false,
        }
    }

    /// It has a response, or has failed.
    pub(crate) fn ended(mut self) {
        self.has_ended = true;
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let waited = self.since.elapsed();
            self.app.given_up(self.pod, waited, self.patience);
        }
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
