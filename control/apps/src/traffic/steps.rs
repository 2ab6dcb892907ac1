//! Gradual rollouts: the share of a new revision grows in steps, once its pods are ready, and is taken back when they fail. Pure.

use dormouse_cluster::app::{GradualRollout, PROGRESSING, RolloutStatus};
use dormouse_cluster::{App, AppStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::split::latest_share;

/// The gradual rollout from now on; none: the latest revision has its whole share. `sleeps`: no revision with traffic has or wants
/// pods.
pub(super) fn next(app: &App, sleeps: bool, now: Timestamp) -> Option<RolloutStatus> {
    let spec = app.spec.rollout.as_ref()?;
    if latest_share(&app.spec) == 0 {
        return None;
    }
    let status = app.status.clone().unwrap_or_default();
    let number = app.revision_number();
    match &status.rollout {
        Some(known) if known.revision == number => {
            let can_start = sleeps || is_rolled_out(app);
            advance(app, &status, spec, known, (can_start, now))
        }
        known => begin(number, &status, known.as_ref()),
    }
}

/// The rollout for whose shares pods are started: one that waits for pods of the latest revision goes on.
pub(super) fn aim(app: &App, rollout: Option<&RolloutStatus>) -> Option<RolloutStatus> {
    let (rollout, spec) = (rollout?, app.spec.rollout.as_ref()?);
    let waits = rollout.percent == 0 && rollout.failure.is_none() && !app.spec.paused;
    if !waits {
        return Some(rollout.clone());
    }
    let percent = if rollout.is_return() {
        100
    } else {
        spec.step_percent
    };
    (percent < 100).then(|| RolloutStatus {
        percent,
        ..rollout.clone()
    })
}

/// The rollout that ends with its last step, which may wait for pods of the latest revision as any other.
pub(super) fn ending(app: &App) -> Option<&RolloutStatus> {
    let known = app.status.as_ref()?.rollout.as_ref()?;
    let is_gradual = app.spec.rollout.is_some();
    Some(known).filter(|known| is_gradual && known.revision == app.revision_number())
}

/// A rollout whose share waited for pods of the latest revision until the deadline; none: this one is no such.
pub(super) fn failed(rollout: &RolloutStatus, failure: String) -> Option<RolloutStatus> {
    let is_step = rollout.failure.is_none() && !rollout.is_return();
    is_step.then(|| RolloutStatus {
        percent: 0,
        since: None,
        failure: Some(failure),
        ..rollout.clone()
    })
}

/// Whether a rollout is to begin: the one in force is of another template, or there is none.
pub(super) fn begins(app: &App, rollout: &RolloutStatus) -> bool {
    let status = app.status.as_ref();
    let known = status.and_then(|status| status.rollout.as_ref());
    known.is_none_or(|known| known.revision != rollout.revision)
}

/// When the next step is due.
pub(super) fn due(app: &App, rollout: &RolloutStatus) -> Option<Timestamp> {
    let spec = app.spec.rollout.as_ref()?;
    let since = rollout.since.as_ref()?.0;
    let interval = SignedDuration::try_from(spec.interval()).ok()?;
    since.checked_add(interval).ok()
}

/// A new template: the revision that was ready before gives its traffic, in steps only to a newer one. `known` is a rollout that
/// this one replaces.
fn begin(number: u32, status: &AppStatus, known: Option<&RolloutStatus>) -> Option<RolloutStatus> {
    let is_new = status.split_revision != Some(number);
    let ready = status.ready_revision;
    let before = ready.filter(|ready| is_new && *ready < number);
    Some(RolloutStatus {
        revision: number,
        from: known.map(|known| known.from).or(before)?,
        percent: 0,
        since: None,
        failure: None,
    })
}

fn advance(
    app: &App,
    status: &AppStatus,
    spec: &GradualRollout,
    known: &RolloutStatus,
    (can_start, now): (bool, Timestamp),
) -> Option<RolloutStatus> {
    let is_rolled_out = is_rolled_out(app);
    let with = |percent: u32, since: Option<Timestamp>| RolloutStatus {
        percent,
        since: since.map(MicroTime),
        ..known.clone()
    };
    if known.is_return() {
        // A return: the child serves until the app's own pods run the template again.
        return (!can_start).then(|| known.clone());
    }
    if known.failure.is_some() {
        return Some(known.clone());
    }
    if let Some(failure) = failure(app, status) {
        return failed(known, failure);
    }
    if app.spec.paused || (known.percent == 0 && !can_start) {
        return Some(with(known.percent, None));
    }
    let is_due = due(app, known).is_some_and(|due| due <= now);
    if known.percent > 0 && !is_due {
        let since = known.since.as_ref().map(|since| since.0);
        // The time of a step begins when pods of the revision are ready, and again if the clock was set back.
        let since = since.filter(|since| *since <= now);
        let since = since.or_else(|| is_rolled_out.then_some(now));
        return Some(with(known.percent, since));
    }
    let percent = known.percent + spec.step_percent;
    (percent < 100).then(|| with(percent, is_rolled_out.then_some(now)))
}

/// Whether all pods of the app run its template, and one was ready.
pub(super) fn is_rolled_out(app: &App) -> bool {
    let status = app.status.as_ref();
    let progressing = status.and_then(|status| status.condition(PROGRESSING));
    progressing.is_some_and(|progressing| {
        progressing.reason == "NewRevisionAvailable"
            && progressing.observed_generation == app.metadata.generation
    })
}

/// Why the latest revision must not get more traffic.
fn failure(app: &App, status: &AppStatus) -> Option<String> {
    let progressing = status.condition(PROGRESSING);
    let overdue = progressing.filter(|progressing| {
        progressing.status == "False" && progressing.observed_generation == app.metadata.generation
    });
    if let Some(overdue) = overdue {
        return Some(format!("{}: {}", overdue.reason, overdue.message));
    }
    let is_current = status.observed_generation == app.metadata.generation;
    let reason = status.reason.as_deref().filter(|_| is_current)?;
    let message = status.message.as_deref().unwrap_or_default();
    let first = message.lines().next().unwrap_or_default();
    (reason == "CrashLoopBackOff").then(|| format!("{reason}: {first}"))
}
