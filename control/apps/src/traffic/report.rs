//! What an app's owner sees of its traffic: the condition `TrafficReady`, and events. Pure.

use dormouse_cluster::app::{RolloutStatus, TRAFFIC_READY};
use dormouse_cluster::events::EventType;
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, AppStatus, Object, TrafficStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::Event;

/// The reason of the condition and the event of a rollout whose traffic was taken back.
const ROLLOUT_FAILED: &str = "RolloutFailed";

/// The reason while a revision has not the pods for its share.
const NOT_READY: &str = "RevisionNotReady";

/// Why the split of the manifest is not in force yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// There is no revision of this name.
    Missing(String),
    /// Another app has this name.
    Taken(String),
    /// The child of this name has no VIP, or no ready pods yet: which.
    NotReady(String, String),
}

impl Obstacle {
    /// The condition's status, reason and message.
    fn report(&self, app: &str) -> (&'static str, &'static str, String) {
        match self {
            Self::Missing(name) => (
                "False",
                "RevisionMissing",
                format!(
                    "there is no revision {name}: name one of `dormouse rollout history app {app}`"
                ),
            ),
            Self::Taken(name) => (
                "False",
                "NameTaken",
                format!(
                    "revision {name} needs an app of its name for its share, but there is another app {name}: delete that, or give it another name"
                ),
            ),
            Self::NotReady(name, text) => (
                "Unknown",
                NOT_READY,
                format!("revision {name} gets its share when its pods are ready: {text}"),
            ),
        }
    }
}

/// Sets the condition in the app's next status. An app whose traffic is not divided has none.
pub(super) fn condition(
    app: &App,
    next: &mut AppStatus,
    obstacle: Option<&Obstacle>,
    now: Timestamp,
) {
    let name = app.key().name;
    let before = next.condition(TRAFFIC_READY).cloned();
    next.conditions
        .retain(|condition| condition.type_ != TRAFFIC_READY);
    if !app.spec.divides_traffic() && next.traffic.is_empty() {
        return;
    }
    let (status, reason, message) = match (obstacle, &next.rollout) {
        (Some(obstacle), Some(rollout)) if rollout.failure.is_some() => {
            let (status, reason, message) = of_rollout(app, rollout, &next.traffic);
            let (_, _, further) = obstacle.report(&name);
            (status, reason, format!("{message}; {further}"))
        }
        (Some(obstacle), _) => obstacle.report(&name),
        (None, Some(rollout)) => of_rollout(app, rollout, &next.traffic),
        (None, None) => ("True", "InForce", text(app, &next.traffic)),
    };
    let same = before.filter(|before| before.status == status);
    next.conditions.push(Condition {
        type_: TRAFFIC_READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: app.metadata.generation,
        last_transition_time: same.map_or(Time(now), |same| same.last_transition_time),
    });
}

fn of_rollout(
    app: &App,
    rollout: &RolloutStatus,
    split: &[TrafficStatus],
) -> (&'static str, &'static str, String) {
    let key = app.key();
    let (new, from) = (
        key_of(&key, rollout.revision).name,
        key_of(&key, rollout.from).name,
    );
    let split = text(app, split);
    if let Some(failure) = &rollout.failure {
        let message = format!("{from} has the traffic of {new} again, which failed: {failure}");
        return ("False", ROLLOUT_FAILED, message);
    }
    if app.spec.paused {
        let message = format!("the rollout of {new} is paused: {split}");
        return ("Unknown", "Paused", message);
    }
    let message = match rollout.percent {
        0 => format!("{new} gets traffic when its pods are ready: {split}"),
        _ => format!("{new} replaces {from} in steps: {split}"),
    };
    ("Unknown", "RollingOut", message)
}

/// A split in words: `90% web-2, 10% web-3 (latest)`.
pub(super) fn text(app: &App, split: &[TrafficStatus]) -> String {
    let key = app.key();
    if split.is_empty() {
        return "100% latest".to_owned();
    }
    let target = |target: &TrafficStatus| {
        let name = key_of(&key, target.revision).name;
        let latest = if target.latest { " (latest)" } else { "" };
        let tag = target.tag.as_ref();
        let tag = tag.map(|tag| format!(" as {tag}")).unwrap_or_default();
        format!("{}% {name}{latest}{tag}", target.percent)
    };
    let targets: Vec<String> = split.iter().map(target).collect();
    targets.join(", ")
}

/// The event about a rollout that has no steps, as the child with the revision before lacks pods.
pub(super) fn without_steps(app: &App, rollout: &RolloutStatus, lacks: &str) -> Event {
    let name = |number| key_of(&app.key(), number).name;
    let (new, from) = (name(rollout.revision), name(rollout.from));
    let message = format!(
        "{new} gets its share without steps: the child {from} cannot serve meanwhile, {lacks}"
    );
    (EventType::Warning, NOT_READY, message)
}

/// The event about what has changed.
pub(super) fn event(app: &App, before: &AppStatus, after: &AppStatus) -> Option<Event> {
    let reason = |status: &AppStatus| {
        let condition = status.condition(TRAFFIC_READY)?;
        Some((condition.reason.clone(), condition.message.clone()))
    };
    let (known, new) = (reason(before), reason(after));
    let is_new = known.map(|(reason, _)| reason) != new.as_ref().map(|(reason, _)| reason.clone());
    if let Some((reason, message)) = new.filter(|_| is_new) {
        for warning in [ROLLOUT_FAILED, "RevisionMissing", "NameTaken"] {
            if reason == warning {
                return Some((EventType::Warning, warning, message));
            }
        }
    }
    let message = text(app, &after.traffic);
    (before.traffic != after.traffic).then_some((EventType::Normal, "TrafficSplit", message))
}
