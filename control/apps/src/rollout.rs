//! An app's change from one template to another, as its record shows it.

#[cfg(test)]
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
use dormouse_cluster::Key;
use dormouse_cluster::app::{CRASH_LOOP, PROGRESSING};
use dormouse_cluster::{App, AppStatus, Revision};
use dormouse_fleet::Boottime;

use crate::backoff::{Backoff, RESET_AFTER};
#[cfg(test)]
use crate::member::Member;
use crate::plan;
use crate::pod;
use crate::progress::{ASLEEP, COMPLETE, OVERDUE, Progress, ProgressState};
use crate::record::AppRecord;

/// Failed pods in a row of a revision that was never ready, from which on the app falls back to the one before.
const FAILURES_MAX: u32 = 3;
/// Pods of earlier templates that leave, for each wanted one, from which on a rollout starts none. They are gone soon, unless nodes do not
/// acknowledge that; templates that change meanwhile would add up pods without bound.
const LEAVING_MAX: usize = 2;

/// The rollout of an app's template.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rollout {
    /// The newest revision of which a pod was ready.
    pub(crate) ready_revision: Option<u32>,
    /// The last progress, while the app has or wants pods: it began to want some, its template changed, or a further pod of it was ready.
    progress_at: Option<Boottime>,
    /// The most pods of the template that were ready at once.
    updated: usize,
    completion: Completion,
    /// There was no progress before the deadline.
    is_overdue: bool,
    /// The template changed while pods of earlier ones were ready, or the app fell asleep before a pod of it was.
    is_replacing: bool,
    /// The newest revision of which a pod was ready, while that is not the app's own.
    pub(crate) before: Option<Release>,
    /// It is being read from the store, or has been.
    pub(crate) is_read: bool,
    /// Failures of its pods.
    pub(crate) backoff: Backoff,
}

/// Whether all pods that were wanted ran the template and were ready. Later ones may start or fail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Completion {
    #[default]
    Never,
    Once,
    /// Pods have failed one after another since, and none has been ready for long: the condition's message.
    Failing(String),
}

/// An app with one of its templates.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    /// The app, with that template and its revision.
    pub(crate) app: Arc<App>,
    /// The template's hash.
    pub(crate) template: String,
}

impl Rollout {
    /// The rollout of a template, as the status in the store shows it.
    fn stored(status: Option<&AppStatus>) -> Self {
        let progressing = status.and_then(|status| status.condition(PROGRESSING));
        let of_reason = |reason| progressing.filter(|condition| condition.reason == reason);
        let completion = match of_reason(CRASH_LOOP) {
            Some(failing) => Completion::Failing(failing.message.clone()),
            None if of_reason(COMPLETE).is_some() => Completion::Once,
            None => Completion::Never,
        };
        Self {
            ready_revision: status.and_then(|status| status.ready_revision),
            completion,
            is_overdue: of_reason(OVERDUE).is_some(),
            is_replacing: of_reason(ASLEEP).is_some(),
            ..Self::default()
        }
    }

    /// The number of the revision to read, to fall back to it.
    pub(crate) fn to_read(&self) -> Option<u32> {
        let is_known = self.is_read || self.before.is_some();
        self.ready_revision.filter(|_| !is_known)
    }
}

impl AppRecord {
    /// The rollout and the failures of its pods, as the status in the store shows them.
    pub(crate) fn resume_rollout(&mut self, status: Option<&AppStatus>) {
        self.rollout = Rollout::stored(status);
        self.backoff = Backoff::resumed(status.and_then(|status| status.pod_failures.as_ref()));
    }

    /// A pod of the template has been ready for long: earlier failures are over. Returns whether there were any.
    pub(crate) fn recover(&mut self) -> bool {
        let had_failures = self.backoff.failures() > 0;
        self.backoff.clear();
        let is_failing = matches!(self.rollout.completion, Completion::Failing(_));
        if is_failing {
            self.rollout.completion = Completion::Once;
        }
        is_failing || had_failures
    }

    /// The app's template becomes another one: that of `app`.
    pub(crate) fn release(&mut self, template: &str, app: &App) {
        let mut rollout = std::mem::take(&mut self.rollout);
        let status = app.status.clone().unwrap_or_default();
        if rollout
            .ready_revision
            .is_some_and(|ready| status.failed_revisions.contains(&ready))
        {
            rollout.ready_revision = status.ready_revision;
        }
        // What made pods of the template before fail may be repaired.
        self.backoff.clear();
        let (ready, earlier) = self.ready_by_template();
        let known = self
            .app
            .clone()
            .filter(|known| Some(known.revision_number()) == rollout.ready_revision);
        let before = match known {
            Some(app) => Some(Release {
                app,
                template: self.template.clone(),
            }),
            None => rollout.before,
        };
        self.rollout = Rollout {
            ready_revision: rollout.ready_revision,
            is_replacing: rollout.is_replacing || ready + earlier > 0,
            before: before.filter(|before| before.template != template),
            ..Rollout::default()
        };
    }

    /// A new control takes over the pods of a rollout.
    pub(crate) fn adopt_rollout(&mut self) {
        let (current, earlier) = self.ready_by_template();
        self.rollout.is_replacing = current == 0 && earlier > 0;
    }

    /// The revision to which the app falls back was read; none: it does not exist.
    pub(crate) fn revision_read(&mut self, read: Option<&Revision>) {
        let number = read.map(|read| read.spec.revision);
        let is_other = number.is_some() && number != self.rollout.ready_revision;
        if !self.rollout.is_read || self.rollout.before.is_some() || is_other {
            // The template has changed since.
            return;
        }
        let known = self.app.as_deref();
        let before = known.zip(read).map(|(known, read)| {
            let mut app = known.clone();
            app.spec = app.spec.with_template(read.spec.template.clone());
            app.status.get_or_insert_default().revision = Some(read.spec.revision);
            let template = pod::template(&app);
            let app = Arc::new(app);
            Release { app, template }
        });
        if before.is_none() {
            self.rollout.ready_revision = None;
        }
        self.rollout.before = before;
    }

    /// Whether the newest revision that was ready gets all pods that are wanted: the app's own was not ready yet, and either
    /// replaces it while it serves, or is not ready in time, fails again and again, or waits.
    pub(crate) fn falls_back(&self) -> bool {
        let Some(app) = self.app.as_deref() else {
            return false;
        };
        let rollout = &self.rollout;
        let is_own = |ready| ready == app.revision_number();
        rollout.ready_revision.is_some_and(|ready| !is_own(ready))
            && (rollout.is_replacing
                || rollout.is_overdue
                || app.holds_rollout()
                || self.backoff.failures() >= FAILURES_MAX)
    }

    /// Clears the failures of the revision to which the app falls back, if a pod of it has been ready for long enough.
    pub(crate) fn clear_earlier_backoff(&mut self, now: Boottime) {
        let earlier = self
            .members
            .values()
            .filter(|member| member.template != self.template);
        let mut since = earlier.filter_map(|member| member.ready_since);
        if since.any(|since| now.since(since) >= RESET_AFTER) {
            self.rollout.backoff.clear();
        }
    }

    /// Whether the app falls back to this template, as far as is known.
    pub(crate) fn falls_back_to(&self, template: &str) -> bool {
        let before = self.rollout.before.as_ref();
        self.falls_back() && before.is_none_or(|before| before.template == template)
    }

    /// Whether all pods run the app's template, but for those that leave: no entry from now on has them, and a node that may use an
    /// earlier one delays only their removal.
    pub(crate) fn is_rolled_out(&self) -> bool {
        let mut live = self.members.values().filter(|member| member.is_live());
        live.all(|member| member.template == self.template)
    }

    /// Whether the rollout needs nothing more: all pods of other templates leave, and those that were wanted were ready.
    fn is_complete(&self) -> bool {
        self.rollout.completion != Completion::Never && self.is_rolled_out()
    }

    /// Whether the rollout starts none of the pods that it lacks until those of earlier templates that leave are gone.
    pub(crate) fn awaits_leaving(&self) -> bool {
        self.leaving() >= LEAVING_MAX * self.wanted().max(1) && plan::is_short(self)
    }

    /// The number of pods of earlier templates that leave, and are not gone.
    fn leaving(&self) -> usize {
        let members = self.members.values();
        let leaving = members.filter(|one| one.draining && one.template != self.template);
        leaving.count()
    }

    /// Notes whether all wanted pods run the template and are ready, as far as the limits of pods allow, and whether they fail since.
    pub(crate) fn note_completion(&mut self) {
        let revision = self.app.as_deref().map(App::revision_number);
        let (ready, _) = self.ready_by_template();
        let has_all = ready >= self.wanted() || self.held.is_some();
        let was_ready = revision.is_some() && revision == self.rollout.ready_revision;
        if self.rollout.completion == Completion::Never {
            if !(was_ready && has_all && self.is_rolled_out()) {
                return;
            }
            self.rollout.completion = Completion::Once;
        }
        if let Some(failure) = self.backoff.in_a_row() {
            let first = failure.message.lines().next().unwrap_or_default();
            let revision = revision.unwrap_or(1);
            let message = format!("revision {revision} was ready, and fails: {first}");
            self.rollout.completion = Completion::Failing(message);
        } else if self.want <= 0 && self.decider.is_some() && self.backoff.failures() == 0 {
            // It has slept, and no pod has failed since the last wake.
            self.rollout.completion = Completion::Once;
        }
    }

    /// The number of pods that an earlier control wanted, as far as they exist: others were leaving then, or are those that a change
    /// of the template has added. `stored` is the status that it has written.
    pub(crate) fn live_of(&self, stored: &AppStatus) -> usize {
        let wanted = usize::try_from(stored.wanted.max(1)).unwrap_or(usize::MAX);
        self.live().min(wanted)
    }

    /// The numbers of ready pods of the app's template, and of earlier ones.
    pub(crate) fn ready_by_template(&self) -> (usize, usize) {
        let members = self.members.values();
        let ready = members.filter(|member| member.address().is_some());
        ready.fold((0, 0), |(current, earlier), member| {
            if member.template == self.template {
                (current + 1, earlier)
            } else {
                (current, earlier + 1)
            }
        })
    }

    /// Notes the progress of the rollout; returns whether it has become overdue.
    pub(crate) fn watch_rollout(&mut self, now: Boottime) -> bool {
        let Some(app) = self.app.clone() else {
            return false;
        };
        let (ready, _) = self.ready_by_template();
        if ready > 0 {
            self.rollout.ready_revision = Some(app.revision_number());
            self.rollout.is_replacing = false;
            self.rollout.before = None;
        }
        let waits = self.awaits_leaving();
        // Without a ready pod, one that was complete has the deadline again.
        let is_complete = self.is_complete() && (ready > 0 || self.want <= 0);
        let rollout = &mut self.rollout;
        if self.want <= 0 || is_complete {
            rollout.progress_at = None;
            rollout.updated = 0;
            rollout.is_overdue &= !is_complete;
            return false;
        }
        if ready > rollout.updated {
            rollout.updated = ready;
            rollout.progress_at = Some(now);
            rollout.is_overdue = false;
        }
        let since = *rollout.progress_at.get_or_insert(now);
        let deadline = Duration::from_secs(self.settings.progress_deadline_s().into());
        if app.holds_rollout() || waits {
            rollout.progress_at = Some(now);
            return false;
        }
        let is_late = now.since(since) >= deadline;
        is_late && !std::mem::replace(&mut rollout.is_overdue, true)
    }

    /// The progress of the rollout.
    pub(crate) fn progress(&self) -> Progress {
        let (ready, earlier) = self.ready_by_template();
        let app = self.app.as_deref();
        let wanted = self.wanted();
        let spec = app.map(|app| &app.spec);
        let state = if self.rollout.is_overdue {
            ProgressState::Overdue {
                deadline_s: self.settings.progress_deadline_s(),
                // It is over when the app has fallen asleep.
                failure: self.backoff.last.clone().filter(|_| wanted > 0),
            }
        } else if let Completion::Failing(message) = &self.rollout.completion {
            let message = message.clone();
            ProgressState::Failing { message }
        } else if let Some(failure) = app.and_then(taken_back) {
            ProgressState::TakenBack { failure }
        } else if self.is_complete() {
            ProgressState::Complete
        } else if spec.is_some_and(|spec| spec.paused) {
            ProgressState::Paused
        } else if app.is_some_and(App::awaits_split) {
            ProgressState::AwaitsSplit
        } else if wanted == 0 {
            ProgressState::NotStarted
        } else if self.awaits_leaving() {
            let leaving = self.leaving();
            ProgressState::AwaitsLeaving { leaving }
        } else {
            ProgressState::RollingOut
        };
        Progress {
            revision: app.map_or(1, App::revision_number),
            state,
            ready,
            earlier,
            wanted,
        }
    }
}

/// Why the traffic of the app's own revision was taken back, if it was. Without gradual rollouts it gets its share again.
fn taken_back(app: &App) -> Option<String> {
    app.spec.rollout.as_ref()?;
    let rollout = app.status.as_ref()?.rollout.as_ref()?;
    let is_own = rollout.revision == app.revision_number();
    rollout.failure.clone().filter(|_| is_own)
}

#[cfg(test)]
impl AppRecord {
    /// What must be true after each event: a ready pod that could stay leaves only if as many pods as are wanted are ready without
    /// it. `before` are the pods before the event.
    pub(crate) fn check_successors(&self, before: &BTreeMap<Key, Member>) -> Result<(), String> {
        let uid = self
            .app
            .as_ref()
            .and_then(|app| app.metadata.uid.as_deref());
        let mut members = self.members.iter();
        let left = members.find(|(key, member)| {
            let known = before.get(*key);
            let was_ready = known.is_some_and(|member| member.address().is_some());
            let seen = member.seen.as_ref();
            let is_ready = seen.is_some_and(|seen| seen.ready.is_some() && !seen.terminating);
            was_ready && is_ready && member.draining && !member.failed && member.is_owned(uid)
        });
        let (ready, wanted) = (self.ready(), self.wanted());
        match left {
            Some((pod, _)) if usize::try_from(ready).is_ok_and(|ready| ready < wanted) => Err(
                format!("{pod} leaves, and {ready} of {wanted} pods are ready"),
            ),
            _ => Ok(()),
        }
    }
}
