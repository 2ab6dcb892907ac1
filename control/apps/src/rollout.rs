//! An app's change from one template to another, as its record shows it.

use std::time::Duration;

use dormouse_cluster::app::PROGRESSING;
use dormouse_cluster::{App, AppStatus};
use dormouse_fleet::Boottime;

use crate::progress::{Progress, ProgressState};
use crate::record::AppRecord;

/// The rollout of an app's template.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rollout {
    /// The newest revision of which a pod was ready.
    pub(crate) ready_revision: Option<u32>,
    /// The last progress, while the app has or wants pods: it began to want some, its template changed, or a further pod of it was ready.
    progress_at: Option<Boottime>,
    /// The most pods of the template that were ready at once.
    updated: usize,
    /// There was no progress before the deadline.
    is_overdue: bool,
}

impl Rollout {
    /// The rollout of a template, as the status in the store shows it.
    pub(crate) fn stored(status: Option<&AppStatus>) -> Self {
        let progressing = status.and_then(|status| status.condition(PROGRESSING));
        Self {
            ready_revision: status.and_then(|status| status.ready_revision),
            is_overdue: progressing.is_some_and(|condition| condition.status == "False"),
            ..Self::default()
        }
    }

    /// The template has changed.
    pub(crate) fn begin(&mut self) {
        *self = Self {
            ready_revision: self.ready_revision,
            ..Self::default()
        };
    }
}

/// The number of the revision that an app's template is.
fn revision(app: &App) -> u32 {
    let status = app.status.as_ref();
    status.and_then(|status| status.revision).unwrap_or(1)
}

impl AppRecord {
    /// Whether all pods run the app's template.
    pub(crate) fn is_rolled_out(&self) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.template == self.template)
    }

    /// Whether the rollout needs nothing more: a pod of the template was ready, and no pod of another one is left.
    fn is_complete(&self) -> bool {
        let revision = self.app.as_deref().map(revision);
        self.is_rolled_out() && revision.is_some() && revision == self.rollout.ready_revision
    }

    /// The number of pods that count towards the wanted number, without those that a change of the template has added. `stored`
    /// is the status that an earlier control has written.
    pub(crate) fn live_without_surge(&self, stored: &AppStatus) -> usize {
        if self.is_rolled_out() {
            return self.live();
        }
        let wanted = usize::try_from(stored.wanted.max(1)).unwrap_or(usize::MAX);
        self.live().min(wanted)
    }

    /// The numbers of ready pods of the app's template, and of earlier ones.
    fn ready_by_template(&self) -> (usize, usize) {
        let ready = self
            .members
            .values()
            .filter(|member| member.address().is_some());
        let (current, earlier): (Vec<_>, Vec<_>) =
            ready.partition(|member| member.template == self.template);
        (current.len(), earlier.len())
    }

    /// Notes the progress of the rollout, and whether it is overdue.
    pub(crate) fn watch_rollout(&mut self, now: Boottime) {
        let Some(app) = self.app.clone() else {
            return;
        };
        let (ready, _) = self.ready_by_template();
        if ready > 0 {
            self.rollout.ready_revision = Some(revision(&app));
        }
        let is_complete = self.is_complete();
        let rollout = &mut self.rollout;
        if self.want <= 0 || is_complete {
            rollout.progress_at = None;
            rollout.updated = 0;
            rollout.is_overdue &= !is_complete;
            return;
        }
        if ready > rollout.updated {
            rollout.updated = ready;
            rollout.progress_at = Some(now);
            rollout.is_overdue = false;
        }
        let since = *rollout.progress_at.get_or_insert(now);
        let deadline = Duration::from_secs(app.spec.progress_deadline_seconds.into());
        if app.spec.paused {
            rollout.progress_at = Some(now);
        } else if now.since(since) >= deadline {
            rollout.is_overdue = true;
        }
    }

    /// The progress of the rollout.
    pub(crate) fn progress(&self) -> Progress {
        let (ready, earlier) = self.ready_by_template();
        let app = self.app.as_deref();
        let wanted = self.wanted();
        let spec = app.map(|app| &app.spec);
        let state = if self.is_complete() {
            ProgressState::Complete
        } else if self.rollout.is_overdue {
            ProgressState::Overdue {
                deadline_s: spec.map_or(0, |spec| spec.progress_deadline_seconds),
                failure: self.backoff.last.clone(),
            }
        } else if spec.is_some_and(|spec| spec.paused) {
            ProgressState::Paused
        } else if wanted == 0 {
            ProgressState::NotStarted
        } else {
            ProgressState::RollingOut
        };
        Progress {
            revision: app.map_or(1, revision),
            state,
            ready,
            earlier,
            wanted,
        }
    }
}
