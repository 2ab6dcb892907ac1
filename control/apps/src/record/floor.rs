//! The floor of an app: the pods that its share of an app's traffic needs for now, which the plan of the traffic writes into its status.

use dormouse_autoscaler::Settings;
use dormouse_autoscaler::path::Path;
use dormouse_cluster::{App, AppStatus, Mode};
use dormouse_fleet::Boottime;

use super::AppRecord;

impl AppRecord {
    /// The least number of pods: that of the settings, or for now that of its share of an app's traffic.
    pub(crate) fn pods_min(&self) -> i32 {
        let max = self.settings.max_scale;
        let floor = if max > 0 {
            self.floor.min(max)
        } else {
            self.floor
        };
        self.settings.min_scale.max(floor)
    }

    /// The settings with the present minimum; none: those of the app are in force as they are.
    pub(super) fn raised(&self) -> Option<Settings> {
        let min_scale = self.pods_min();
        (min_scale > self.settings.min_scale).then(|| Settings {
            min_scale,
            ..self.settings.clone()
        })
    }

    /// Whether this state of the app has another floor than is in force.
    pub(crate) fn has_other_floor(&self, app: &App) -> bool {
        app.status.as_ref().map_or(0, of) != self.floor
    }

    /// Puts the floor of the app's status in force. An app that sleeps starts its pods.
    pub(crate) fn apply_floor(&mut self, now: Boottime) {
        let app = self.app.clone();
        let status = app.as_ref().and_then(|app| app.status.as_ref());
        let floor = status.map_or(0, of);
        let before = std::mem::replace(&mut self.floor, floor);
        if before == floor {
            return;
        }
        if before == 0 && self.ready() == 0 {
            let mode = status.map_or(Mode::Proxy, |status| status.mode);
            self.path = Path::found(mode == Mode::Serve);
            self.decision = None;
        }
        if self.decider.is_none() && floor > 0 {
            self.start(now);
        } else {
            self.reconcile(now);
            if floor < before && self.ready() == 0 {
                self.want_no_more();
            }
        }
    }

    /// Whether no decision has seen a ready pod since the floor began: the load of the share is not known.
    pub(super) fn is_share_unmeasured(&self) -> bool {
        let decision = self.decision.as_ref();
        self.floor > 0 && decision.is_none_or(|decision| decision.ready == 0)
    }

    /// Wants no pods beyond those of the load and the floor. The autoscaler waits with that until one is ready.
    fn want_no_more(&mut self) {
        let desired = self
            .decider
            .as_ref()
            .map(|decider| decider.status().desired);
        if let Some(desired) = desired.filter(|desired| *desired >= 0) {
            self.want = self.want.min(desired.max(self.pods_min()).max(1));
        }
    }
}

/// The floor in an app's status.
pub(super) fn of(status: &AppStatus) -> i32 {
    i32::try_from(status.pods_min).unwrap_or(i32::MAX)
}
