//! The scaling decisions of an app: from its load to the wanted number of pods and the mode, from the wake until it sleeps.

use dormouse_autoscaler::decider::{Decider, Stat};
use dormouse_autoscaler::kpa::{self, Activity, Inputs};
use dormouse_autoscaler::path::Path;
use dormouse_fleet::Boottime;

use super::{AppRecord, ms};
use crate::decisions::Decisions;

impl AppRecord {
    /// Whether the app is asleep, so that a packet or request wakes it.
    pub(crate) fn can_wake(&self) -> bool {
        self.app.is_some() && self.live() == 0 && (self.want <= 0 || self.decider.is_none())
    }

    /// A packet or request for the app: wakes it if it is asleep. Returns whether it was.
    pub(crate) fn wake(&mut self, now: Boottime) -> bool {
        if !self.can_wake() {
            return false;
        }
        let decider = self
            .decider
            .get_or_insert_with(|| Decider::new(ms(now), self.settings.clone(), Some(0)));
        decider.record(
            ms(now),
            &Stat {
                concurrency: 1.0,
                requests: 1.0,
                ..Stat::default()
            },
        );
        self.wake_counted = true;
        self.decisions = Decisions::default();
        self.decide(now);
        self.reconcile(now);
        self.last_wake = Some(now);
        true
    }

    /// Adds one node's count of connections directly to pods. It enters the window at the next tick, so that no tick
    /// reads the counts of only some nodes.
    pub(crate) fn add_direct_load(&mut self, concurrency: f64, requests: f64) {
        // Without a decider no tick takes it.
        if self.decider.is_some() {
            self.direct_load.concurrency += concurrency;
            self.direct_load.requests += requests;
        }
    }

    /// Records the load of the last second, in the activator and on the nodes. No load is recorded too.
    pub(crate) fn record_load(&mut self, now: Boottime, concurrency: f64, requests: f64) {
        let early = if std::mem::take(&mut self.wake_counted) {
            1.0
        } else {
            0.0
        };
        let mut stat = std::mem::take(&mut self.direct_load);
        stat.concurrency += (concurrency - early).max(0.0);
        stat.requests += (requests - early).max(0.0);
        if let Some(decider) = &mut self.decider {
            decider.record(ms(now), &stat);
        }
    }

    /// A tick of the decider.
    pub(crate) fn decide(&mut self, now: Boottime) {
        let ready = self.ready();
        let Some(decider) = &mut self.decider else {
            return;
        };
        match decider.decide(ms(now), Some(ready)) {
            Ok(decision) => {
                let burst = decision.target_burst_capacity;
                self.path.decided(decision.excess_burst_capacity, burst);
                (self.decision, self.no_decision) = (Some(decision), None);
            }
            Err(reason) => {
                self.path.undecided();
                self.no_decision = Some(reason);
            }
        }
    }

    /// Updates the wanted number of pods and the mode from the last decision and the pods.
    pub(crate) fn reconcile(&mut self, now: Boottime) {
        let Some(status) = self.decider.as_ref().map(Decider::status) else {
            return;
        };
        let inputs = Inputs {
            now_ms: ms(now),
            status: Some(status),
            ready: self.ready(),
            activator_in_path: self.proxied_everywhere(),
        };
        let raised = self.raised();
        let settings = raised.as_ref().unwrap_or(&self.settings);
        let outcome = self.kpa.reconcile(settings, &inputs);
        if outcome.applied {
            self.want = outcome.desired;
        }
        // Without data, a new control keeps the mode that it found, and pods for a share keep that of the traffic.
        let is_unknown = status.desired < 0 || self.is_share_unmeasured();
        let serve = outcome.mode == kpa::Mode::Serve || (is_unknown && self.path.serves());
        let before = self.mode();
        self.path.change(serve, self.settings.damping, ms(now));
        if self.mode() != before {
            self.mode_since = now;
        }
        self.note_decision(now);
    }

    /// Whether the first packet or request is the only load so far.
    pub(crate) fn was_just_woken(&self) -> bool {
        self.wake_counted && self.want > 0
    }

    /// Drops the autoscaler's state if the app has no pods and wants none: from then on it costs nothing. Returns whether it falls asleep.
    pub(crate) fn sleep_if_idle(&mut self, now: Boottime) -> bool {
        let idle =
            self.kpa.activity == Activity::Inactive && self.want <= 0 && self.members.is_empty();
        let falls_asleep = idle && self.decider.take().is_some();
        if falls_asleep {
            self.slept_at = Some(now);
            self.path = Path::default();
            self.backoff.clear();
            self.wake_counted = false;
        }
        falls_asleep
    }
}
