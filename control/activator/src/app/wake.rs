//! The demand for an app's route and for its first pod: raised once, repeated while needed, and the first response.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_fleet::clock::Boottime;
use tokio::time::sleep;
use tracing::warn;

use super::{App, State};
use crate::report::Report;

/// Interval of repeated wants and demands.
const DEMAND_PERIOD: Duration = Duration::from_secs(1);

/// What an app's requests wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Control's answer: the first of them dialled this port.
    Route { port: u16 },
    /// A ready pod.
    Pod,
}

/// The state of an app's wake.
#[derive(Default)]
pub(super) struct Wake {
    /// The need that was raised last, while a task repeats it.
    raised: Option<Need>,
    awaiting_first_byte: bool,
}

/// A need to raise, and whether a task already repeats the app's needs.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    need: Need,
    repeats: bool,
}

impl App {
    /// Records that a backend's response has begun.
    pub(crate) fn response_begun(&self) {
        let mut state = self.state.lock();
        state.responses += 1;
        if std::mem::take(&mut state.wake.awaiting_first_byte) {
            drop(state);
            self.report(Report::FirstByte {
                vip: self.vip,
                at: Boottime::now(),
            });
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
        state.wake.raised = need;
        drop(state);
        need.map(|need| self.demand(need)).is_some()
    }
}

impl State {
    fn need(&self) -> Option<Need> {
        if self.removed {
            return None;
        }
        match self.asking.port() {
            Some(port) if self.route.is_none() => Some(Need::Route { port }),
            _ if self.breaker.parked() > 0 && !self.breaker.has_backend() => Some(Need::Pod),
            _ => None,
        }
    }

    /// The need that begins now, if it was not raised yet.
    pub(super) fn begins_wake(&mut self) -> Option<Begun> {
        let need = self.need()?;
        let before = self.wake.raised;
        if before.is_some_and(|before| before == need || need != Need::Pod) {
            return None;
        }
        self.wake = Wake {
            raised: Some(need),
            awaiting_first_byte: true,
        };
        Some(Begun {
            need,
            repeats: before.is_some(),
        })
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
