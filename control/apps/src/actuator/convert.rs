//! Conversions of the plan's types to those of the store, the fleet and the activator.

use dormouse_activator as activator;
use dormouse_cluster::app::{PROGRESSING, ROLLED_OUT, TRAFFIC_READY};
use dormouse_cluster::{App, AppStatus, Mode, Sticky};
use dormouse_fleet::proto::{self, entry};
use dormouse_fleet::{Backend, Boottime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::action::{Entry, Route, Status};
use crate::readiness::{self, READY};
use crate::rolled_out;

/// IP protocol number of apps' ports.
const TCP: u32 = 6;

/// The status to be written to an app, whose status so far is taken.
pub(crate) fn app_status(app: &mut App, status: &Status) -> AppStatus {
    let before = app.status.take().unwrap_or_default();
    let conditions = conditions(app, status, &before);
    let failure = status.failure.clone();
    let (reason, message) = failure
        .map(|failure| (failure.reason, failure.message))
        .unzip();
    let mut next = AppStatus {
        vip: app.vip(),
        state: status.state,
        mode: status.mode,
        ready: status.ready,
        wanted: status.wanted,
        last_wake: status
            .last_wake
            .map(|at| stable_time(wall_time(at), before.last_wake.as_ref()))
            .or(before.last_wake),
        reason,
        message,
        revision: before.revision,
        previous_revision: before.previous_revision,
        traffic: before.traffic,
        split_revision: before.split_revision,
        rollout: before.rollout,
        traffic_move: before.traffic_move,
        pods_min: before.pods_min,
        ready_revision: status.ready_revision,
        earlier_ready_revisions: before.earlier_ready_revisions,
        failed_revisions: before.failed_revisions,
        pod_failures: status.pod_failures.clone(),
        template_hash: Some(status.template_hash.clone()),
        observed_generation: status.generation,
        conditions,
    };
    if app.metadata.generation == status.generation {
        rolled_out::set(app, &mut next, Timestamp::now());
    }
    next
}

/// Whether an app is written with the traffic split with which its entry was planned.
pub(crate) fn has_same_split(planned: &App, written: &App) -> bool {
    let split = |app: &App| app.status.as_ref().map(|status| status.traffic.clone());
    split(planned).unwrap_or_default() == split(written).unwrap_or_default()
}

/// The conditions, unless the app has another manifest meanwhile: they are about the one before.
fn conditions(app: &App, status: &Status, before: &AppStatus) -> Vec<Condition> {
    if app.metadata.generation != status.generation {
        return before.conditions.clone();
    }
    let now = Timestamp::now();
    let (generation, known) = (status.generation, before.condition(PROGRESSING));
    let progress = status.progress.condition(generation, known, now);
    let ready = readiness::condition(status, before.condition(READY), now);
    let others = [TRAFFIC_READY, ROLLED_OUT];
    let others = others
        .into_iter()
        .filter_map(|type_| before.condition(type_).cloned());
    [progress].into_iter().chain(ready).chain(others).collect()
}

/// The stored time, if it differs by less than a second: computed from two clocks, the same time varies in its last
/// digits.
fn stable_time(now: Time, before: Option<&Time>) -> Time {
    let same = |before: &&Time| now.0.duration_since(before.0).abs() < SignedDuration::from_secs(1);
    before.filter(same).cloned().unwrap_or(now)
}

/// The wall-clock time of a boottime.
fn wall_time(at: Boottime) -> Time {
    let ago = SignedDuration::try_from(Boottime::now().since(at)).unwrap_or_default();
    Time(
        Timestamp::now()
            .checked_sub(ago)
            .unwrap_or_else(|_out_of_range| Timestamp::now()),
    )
}

pub(crate) fn entry_message(vip: u32, version: u64, entry: &Entry) -> proto::Entry {
    let mode = match entry.mode {
        Mode::Proxy => entry::Mode::Proxy,
        Mode::Serve => entry::Mode::Serve,
    };
    proto::Entry {
        vip,
        version,
        mode: mode.into(),
        share: 0,
        backends: Backend::pack(&entry.backends),
        settle: entry.settle,
        gone: false,
        leased: true,
        asleep: entry.asleep,
        port: u32::from(entry.port),
        protocol: TCP,
        split: entry.split.clone(),
    }
}

pub(crate) fn route_of(version: u64, route: Route) -> activator::Route {
    let targets = route.split.iter().map(|target| activator::SplitTarget {
        vip: target.vip,
        weight: target.weight,
    });
    let targets: Vec<_> = targets.collect();
    let sticky = route.sticky.map(|sticky| match sticky {
        Sticky::Header(name) => activator::Sticky::Header(name),
        Sticky::Cookie(name) => activator::Sticky::Cookie(name),
        Sticky::ClientIp {} => activator::Sticky::ClientAddress,
    });
    let split = (!targets.is_empty()).then_some(activator::Split { targets, sticky });
    activator::Route {
        name: route.name,
        tenant: route.tenant,
        version,
        port: route.port,
        container_concurrency: route.container_concurrency,
        timeout: route.timeout,
        serving: route.serving,
        backends: route.backends,
        wake_timeout: route.wake_timeout,
        problem: route.problem,
        split,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sticky(sticky: Sticky) -> Option<activator::Sticky> {
        let route = Route {
            name: "default/web".to_owned(),
            tenant: "default".to_owned(),
            port: 80,
            container_concurrency: 0,
            timeout: Duration::from_secs(1),
            serving: false,
            backends: Vec::new(),
            wake_timeout: Duration::from_secs(1),
            problem: None,
            split: vec![proto::Target {
                vip: 7,
                weight: 100,
            }],
            sticky: Some(sticky),
        };
        route_of(1, route).split.unwrap().sticky
    }

    #[test]
    fn an_activator_gets_what_makes_requests_sticky_as_the_manifest_has_it() {
        let name = || "session".to_owned();
        assert_eq!(
            sticky(Sticky::Header(name())),
            Some(activator::Sticky::Header(name()))
        );
        assert_eq!(
            sticky(Sticky::Cookie(name())),
            Some(activator::Sticky::Cookie(name()))
        );
        assert_eq!(
            sticky(Sticky::ClientIp {}),
            Some(activator::Sticky::ClientAddress)
        );
    }
}
