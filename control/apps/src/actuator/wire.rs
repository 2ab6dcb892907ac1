//! From the plan's words to those of the store, the fleet and the activator.

use dormouse_activator as activator;
use dormouse_cluster::{App, AppStatus, Mode};
use dormouse_fleet::proto::{self, entry};
use dormouse_fleet::{Backend, Boottime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::action::{Entry, Route, Status};

/// Apps are reached by TCP.
const TCP: u32 = 6;

pub(super) fn stored(app: &App, status: &Status) -> AppStatus {
    let before = app.status.clone().unwrap_or_default();
    let (reason, message) = status.trouble.clone().unzip();
    AppStatus {
        vip: app.vip(),
        state: status.state,
        mode: status.mode,
        ready: status.ready,
        wanted: status.wanted,
        last_wake: status
            .last_wake
            .map(|at| steady(wall(at), before.last_wake.as_ref()))
            .or(before.last_wake),
        reason,
        message,
    }
}

/// The time as it was written before, where both mean the same moment: two clocks never agree to the last digit.
fn steady(now: Time, before: Option<&Time>) -> Time {
    let same = |before: &&Time| now.0.duration_since(before.0).abs() < SignedDuration::from_secs(1);
    before.filter(same).cloned().unwrap_or(now)
}

/// The wall clock's time of a moment on the shared clock.
fn wall(at: Boottime) -> Time {
    let ago = SignedDuration::try_from(Boottime::now().since(at)).unwrap_or_default();
    Time(
        Timestamp::now()
            .checked_sub(ago)
            .unwrap_or_else(|_out_of_range| Timestamp::now()),
    )
}

pub(super) fn wire(vip: u32, version: u64, entry: &Entry) -> proto::Entry {
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
    }
}

pub(super) fn route_of(route: Route) -> activator::Route {
    activator::Route {
        name: route.name,
        port: route.port,
        container_concurrency: route.container_concurrency,
        timeout: route.timeout,
        backends: route.backends,
    }
}
