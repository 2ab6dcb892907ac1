//! The plan of one app: the actions from its current state, and those in progress, to the wanted state. Pure and
//! idempotent: without a change, a second plan is empty.

mod publish;
mod resume;
mod rollout;

use dormouse_activator::Problem;
use dormouse_cluster::{App, Key, Mode, Object, TrafficStatus, events, vip};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Target;

pub(crate) use publish::{
    asleep, failure, listing, same_routing, state, status, unresponsive, written,
};
pub(crate) use resume::resume;
pub(crate) use rollout::is_short;

use crate::action::{Action, Failure, Route};
use crate::admission::{EVENT_INTERVAL, PODS_LIMITED};
use crate::member::{Exposure, Member};
use crate::pod;
use crate::progress::OVERDUE;
use crate::record::AppRecord;
use crate::rollout::Release;
use crate::shared::Shared;

/// Plans one app.
pub(crate) fn plan(record: &mut AppRecord, now: Boottime, shared: &Shared) -> Vec<Action> {
    let mut actions = Vec::new();
    record.split = split_of(record, shared);
    record.apply_floor(now);
    record.bound(&shared.admission);
    drain(record, now, &mut actions);
    actions.extend(overdue(record, now));
    rollout::drain(record);
    scale_up(record, now, shared, &mut actions);
    record.note_completion();
    actions.extend(held(record, now));
    actions.extend(waiting(record, now));
    route(record, &mut actions);
    publish::publish(record, now, &mut actions);
    settle(record, &mut actions);
    delete(record, &mut actions);
    actions
}

/// Marks pods to drain: those that failed or were deleted, and those of a deleted app.
fn drain(record: &mut AppRecord, now: Boottime, actions: &mut Vec<Action>) {
    let gone = record.app.is_none();
    for (key, member) in &mut record.members {
        let ended = member.seen.as_ref().and_then(|seen| seen.ended.clone());
        if let Some(failure) = ended.filter(|_| !member.failed && !member.draining) {
            member.failed = true;
            actions.extend(
                record
                    .app
                    .as_deref()
                    .map(|app| pod_failed(app, key, &failure)),
            );
            if member.template == record.template {
                record.backoff.failed(now, failure);
            } else {
                record.rollout.backoff.failed(now, failure);
            }
        }
        let deleted = member.seen.as_ref().is_some_and(|seen| seen.terminating);
        member.draining |= gone || deleted || member.failed;
    }
}

/// Notes the progress of the rollout; an event when it becomes overdue.
fn overdue(record: &mut AppRecord, now: Boottime) -> Option<Action> {
    let is_new = record.watch_rollout(now);
    let app = record.app.as_deref().filter(|_| is_new)?;
    Some(Action::RecordEvent {
        about: Box::new(events::reference(app)),
        reason: OVERDUE.into(),
        message: record.progress().to_string(),
    })
}

fn pod_failed(app: &App, pod: &Key, failure: &Failure) -> Action {
    let about = Box::new(events::reference(app));
    Action::RecordEvent {
        about,
        reason: "PodFailed".into(),
        message: format!("pod {pod}: {}", failure.brief()),
    }
}

/// Adds missing pods: draining ones are taken back first, those that are ready before others; then new ones are created.
fn scale_up(record: &mut AppRecord, now: Boottime, shared: &Shared, actions: &mut Vec<Action>) {
    let Some(app) = record.app.clone() else {
        record.admit(0, &shared.admission);
        record.held = None;
        return;
    };
    replace_failed_successors(record);
    actions.extend(rollout::read(record));
    let before = record.rollout.before.clone();
    let mut earlier = 0;
    if let Some(before) = &before {
        let missing = rollout::missing_earlier(record);
        let missing = missing.saturating_sub(reuse(record, &before.template, missing));
        earlier = record.rollout.backoff.wait(now).map_or(missing, |_| 0);
    }
    let template = record.template.clone();
    let missing = rollout::missing(record);
    let missing = missing.saturating_sub(reuse(record, &template, missing));
    let missing = record.backoff.wait(now).map_or(missing, |_| 0);
    let admitted = record.admit(earlier + missing, &shared.admission);
    let earlier = earlier.min(admitted);
    let own = Release { app, template };
    let releases = before.map(|before| (before, earlier)).into_iter();
    for (release, pods) in releases.chain([(own, admitted - earlier)]) {
        create(record, &release, pods, now, shared, actions);
    }
}

/// Creates so many pods of a template.
fn create(
    record: &mut AppRecord,
    of: &Release,
    pods: usize,
    now: Boottime,
    shared: &Shared,
    actions: &mut Vec<Action>,
) {
    for _ in 0..pods {
        let pod = pod::of(&of.app, record.vip, of.template.clone(), &shared.names);
        record
            .members
            .insert(pod.key(), Member::new(now, of.template.clone()));
        actions.push(Action::Create {
            vip: record.vip,
            pod: Box::new(pod),
        });
    }
}

/// Takes up to so many draining pods of a template back; returns how many.
fn reuse(record: &mut AppRecord, template: &str, missing: usize) -> usize {
    take_back(record, missing, |member| member.template == template)
}

/// Takes ready pods of earlier templates back that have not left yet, while fewer pods are ready than are wanted, one for each successor
/// that has failed meanwhile. Further pods that are wanted are of the app's template.
fn replace_failed_successors(record: &mut AppRecord) {
    let ready = usize::try_from(record.ready()).unwrap_or_default();
    let template = record.template.clone();
    let uid = record.app.as_ref().and_then(|app| app.metadata.uid.clone());
    let members = record.members.values();
    let failed = members.filter(|member| member.failed && member.template == template);
    let lacking = record.wanted().saturating_sub(ready).min(failed.count());
    take_back(record, lacking, |member| {
        let is_ready = member
            .seen
            .as_ref()
            .is_some_and(|seen| seen.ready.is_some());
        is_ready && member.template != template && member.is_owned(uid.as_deref())
    });
}

/// Takes up to so many draining pods back, those that are ready first; returns how many.
fn take_back(record: &mut AppRecord, missing: usize, is_wanted: impl Fn(&Member) -> bool) -> usize {
    if missing == 0 {
        return 0;
    }
    let reusable = |member: &&mut Member| {
        let seen = member.seen.as_ref();
        let over = seen.is_some_and(|seen| seen.terminating || seen.ended.is_some());
        member.draining && !member.deleting && !member.failed && !over && is_wanted(member)
    };
    let mut reused: Vec<&mut Member> = record.members.values_mut().filter(reusable).collect();
    reused.sort_by_key(|member| (member.ready_since.is_none(), member.created));
    let mut count = 0;
    for member in reused.into_iter().take(missing) {
        member.draining = false;
        count += 1;
    }
    count
}

/// An event about the limit because of which the app lacks pods, at most one a minute.
fn held(record: &mut AppRecord, now: Boottime) -> Option<Action> {
    let (app, held) = (record.app.as_deref()?, record.held?);
    let recent = |at: &Boottime| now.since(*at) < EVENT_INTERVAL;
    if record.held_event.as_ref().is_some_and(recent) {
        return None;
    }
    let event = Action::RecordEvent {
        about: Box::new(events::reference(app)),
        reason: PODS_LIMITED.into(),
        message: held.message(record.want),
    };
    record.held_event = Some(now);
    Some(event)
}

/// An event about a pod that is not ready for a known reason, or does not answer: when the reason is another one, and once a minute.
fn waiting(record: &mut AppRecord, now: Boottime) -> Option<Action> {
    let Some(failure) = publish::waiting(record).or_else(|| unresponsive(record)) else {
        record.waiting_event = None;
        return None;
    };
    let known = record.waiting_event.as_ref();
    if known
        .is_some_and(|(reason, at)| *reason == failure.reason && now.since(*at) < EVENT_INTERVAL)
    {
        return None;
    }
    let app = record.app.as_deref()?;
    let event = Action::RecordEvent {
        about: Box::new(events::reference(app)),
        reason: failure.reason.clone().into(),
        message: failure.message,
    };
    record.waiting_event = Some((failure.reason, now));
    Some(event)
}

/// Sends the ready pods to the activators.
fn route(record: &mut AppRecord, actions: &mut Vec<Action>) {
    if !is_routed(record) {
        let route = route_of(record);
        record.route.clone_from(&route);
        actions.push(Action::Route {
            vip: record.vip,
            version: record.published.version,
            route,
        });
    }
}

/// Whether the activators have the app's route. Most plans change none: this makes no copy of it.
fn is_routed(record: &AppRecord) -> bool {
    let (Some(app), Some(route)) = (&record.app, &record.route) else {
        return record.app.is_none() && record.route.is_none();
    };
    let name = route.name.strip_prefix(route.tenant.as_str());
    let name = name.and_then(|name| name.strip_prefix('/'));
    route.tenant == record.key.namespace
        && name == Some(record.key.name.as_str())
        && route.port == app.spec.port
        && route.container_concurrency == app.spec.scale.container_concurrency
        && route.timeout == app.spec.timeout()
        && route.serving == is_serving(record)
        && route.backends == record.backends()
        && route.wake_timeout == app.spec.wake_timeout()
        && route.problem == problem_of(record)
        && route.split == record.split
        && route.sticky == app.spec.sticky
}

fn is_serving(record: &AppRecord) -> bool {
    let entry = record.published.entry.as_ref();
    entry.is_some_and(|entry| entry.mode == Mode::Serve)
}

/// The app's route; none: it was deleted.
pub(crate) fn route_of(record: &AppRecord) -> Option<Route> {
    let serving = is_serving(record);
    record.app.as_ref().map(|app| Route {
        name: record.key.to_string(),
        tenant: record.key.namespace.clone(),
        port: app.spec.port,
        container_concurrency: app.spec.scale.container_concurrency,
        timeout: app.spec.timeout(),
        serving,
        backends: record.backends(),
        wake_timeout: app.spec.wake_timeout(),
        problem: problem_of(record),
        split: record.split.clone(),
        sticky: app.spec.sticky.clone(),
    })
}

/// The targets of the traffic split in force. Addresses outside the VIP ranges, which nothing writes, get nothing.
fn split_of(record: &AppRecord, shared: &Shared) -> Vec<Target> {
    let status = record.app.as_ref().and_then(|app| app.status.as_ref());
    let targets = status.map_or(&[][..], |status| &status.traffic);
    let ranges = &shared.config.ranges;
    let target = |target: &TrafficStatus| {
        let vip = vip::index_of(ranges, target.vip)?.0;
        let weight = target.percent;
        Some(Target { vip, weight })
    };
    targets.iter().filter_map(target).collect()
}

/// Why no pod is ready, for clients. After some failures in a row, requests are refused until a pod is ready, unless pods of a
/// revision start that was ready before.
fn problem_of(record: &AppRecord) -> Option<Problem> {
    if record.ready() > 0 || record.wanted() == 0 {
        return None;
    }
    let failure = failure(record)?;
    Some(Problem {
        message: failure.brief(),
        retry_after: record.backoff.pause().filter(|_| !record.falls_back()),
    })
}

/// Waits until no node uses an older entry, one version at a time.
fn settle(record: &mut AppRecord, actions: &mut Vec<Action>) {
    if record.published.settling.is_some() {
        return;
    }
    let draining = record
        .members
        .values()
        .filter(|member| member.draining)
        .filter_map(|member| match member.exposure {
            Exposure::Unlisted(version) => Some(version),
            _ => None,
        });
    // Before an app falls asleep, every node must have acknowledged proxy mode.
    let idle = record
        .published
        .proxy_since
        .filter(|_| !record.path.serves() && !record.members.is_empty());
    let newest = draining
        .chain(idle)
        .max()
        .filter(|version| *version > record.published.settled);
    if let Some(version) = newest {
        record.published.settling = Some(version);
        actions.push(Action::Settle {
            vip: record.vip,
            version,
        });
    }
}

/// Deletes draining pods that no node's entry contains any more.
fn delete(record: &mut AppRecord, actions: &mut Vec<Action>) {
    let settled = record.published.settled;
    for (key, member) in &mut record.members {
        let unused = match member.exposure {
            Exposure::Never => true,
            Exposure::Listed => false,
            Exposure::Unlisted(version) => version <= settled,
        };
        if member.draining && unused && !member.deleting && member.seen.is_some() {
            member.deleting = true;
            actions.push(Action::Delete {
                vip: record.vip,
                pod: key.clone(),
            });
        }
    }
}
