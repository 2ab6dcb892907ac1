//! The manifest of an app, and the settings that follow from it and from the cluster's.

use std::sync::Arc;

use dormouse_autoscaler::kpa::Reconciler;
use dormouse_autoscaler::path::Path;
use dormouse_cluster::{App, Key};
use dormouse_fleet::Boottime;

use super::{AppRecord, ms};
use crate::decisions::Decisions;
use crate::pod;
use crate::settings::InForce;

impl AppRecord {
    /// Another app has the VIP now. The pods of the previous one are removed, as those of any deleted app.
    pub(crate) fn replace(&mut self, key: Key, app: Arc<App>, settings: &InForce, now: Boottime) {
        self.key = key;
        self.published.status = None;
        self.app = None;
        self.backoff.clear();
        self.kpa = Reconciler::new(ms(now));
        (self.decider, self.decision, self.no_decision) = (None, None, None);
        (self.last_wake, self.want, self.path) = (None, 0, Path::default());
        self.decisions = Decisions::default();
        self.configure(app, settings, now);
    }

    /// Sets a new manifest.
    pub(crate) fn configure(&mut self, app: Arc<App>, settings: &InForce, now: Boottime) {
        self.set(&app, settings);
        let template = pod::template(&app);
        if self.app.is_none() {
            self.resume_rollout(app.status.as_ref());
        } else if self.template != template {
            self.release(&template, &app);
        }
        self.template = template;
        self.app = Some(app);
        self.disown();
        self.deleted_at = None;
        if self.decider.is_some() {
            self.configure_decider(now);
        } else {
            self.begin(now);
        }
    }

    /// Applies the cluster's settings if they have changed.
    pub(crate) fn update_settings(&mut self, settings: &InForce, now: Boottime) {
        if self.settings_number == settings.number() {
            return;
        }
        if let Some(app) = self.app.clone() {
            self.set(&app, settings);
            self.configure_decider(now);
        }
    }

    fn configure_decider(&mut self, now: Boottime) {
        if let Some(decider) = &mut self.decider {
            let delay_s = decider.settings().scale_down_delay_s;
            decider.configure(self.settings.clone());
            decider.set_delay(delay_s, ms(now));
            decider.resize(ms(now));
        }
    }

    pub(super) fn set(&mut self, app: &App, settings: &InForce) {
        // The number first: a change in between is applied again.
        self.settings_number = settings.number();
        let autoscaling = app.autoscaling(&settings.get());
        (self.settings, self.ignored) = (autoscaling.settings, autoscaling.ignored);
    }
}
