//! The pods that the targets of a split need. While an app is under load, a revision gets a greater share when it has the pods for it,
//! and keeps them until its own load is measured: a share of 0 percent has no load from which the autoscaler could know. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_autoscaler::Settings;
use dormouse_cluster::app::TrafficMove;
use dormouse_cluster::{AppStatus, TrafficStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::Family;
use super::load::Load;
use super::split::Row;
use super::steps;
use super::wait::Wait;
use crate::admission::PODS_LIMITED;
use crate::pod::UNSCHEDULABLE;
use crate::settings::TICK;

/// Reasons for which an app gets no further pods.
const NO_FURTHER_PODS: [&str; 2] = [PODS_LIMITED, UNSCHEDULABLE];

/// A target of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The app's own template.
    Own,
    /// The child of this revision.
    Child(u32),
}

/// The percentages of the targets.
type Shares = BTreeMap<Target, u32>;

/// What the targets of an app need at one point of time.
#[derive(Debug)]
pub(super) struct Needs {
    /// The split in force.
    before: Shares,
    /// The split that is to be in force.
    next: Shares,
    /// The shares for which pods are started: the next ones, or greater ones after those.
    aim: Shares,
    /// Targets that keep their pods for now.
    kept: Vec<Target>,
    /// After the deadline, the most pods of each target that are started: a few show whether they work again.
    tries: Shares,
    /// Whether targets that do not get a greater share are awake.
    is_loaded: bool,
    /// The only targets for which pods are started; none: all.
    only: Option<Vec<Target>>,
    /// The move of the traffic.
    moving: Option<TrafficMove>,
    /// The end of the time for which pods are kept.
    pub(super) until: Option<Timestamp>,
    /// The maximum scale; 0 is no limit.
    max: u32,
    /// How long shares have waited for pods.
    pub(super) wait: Wait,
    /// Whether all pods of the app itself run its template.
    is_rolled_out: bool,
    /// Whether shares wait for no pods.
    is_now: bool,
}

impl Needs {
    /// `next` and `aim` are the rows that are to be in force, and those after them.
    pub(super) fn new(family: &Family, next: &[Row], aim: &[Row], now: Timestamp) -> Self {
        let before = in_force(&family.traffic());
        let next = of_rows(next);
        let mut aim = of_rows(aim);
        for (target, percent) in &next {
            let aimed = aim.entry(*target).or_default();
            *aimed = (*aimed).max(*percent);
        }
        let settings = family.settings();
        let has_share = before.iter().filter(|(_, percent)| **percent > 0);
        let targets = has_share.map(|(target, percent)| {
            let pods = family.status(*target).map_or(0, pods_of);
            (pods, *percent, share(&next, *target) > *percent)
        });
        let load = Load::new(targets, settings.min_scale.unsigned_abs());
        let is_loaded = load.most() > 0;
        let status = family.app.status.as_ref();
        let known = status.and_then(|status| status.traffic_move.clone());
        let until = known.as_ref().and_then(|known| end(&settings, known, now));
        let until = until.filter(|until| *until > now);
        let shares = aim.iter();
        let mut shares = shares.map(|(target, to)| (share(&before, *target), *to));
        let is_small = shares.clone().all(|(from, to)| 4 * to <= 5 * from);
        let grows = shares.any(|(from, to)| to > from) && is_loaded;
        let moving = match known {
            // Targets that have lost shares have more pods than they need for now: no measure of the load either.
            Some(known) if until.is_some() => Some(known),
            known => grows.then(|| TrafficMove {
                pods: load.pods(known.map(|known| known.pods), is_small),
                since: None,
                waits: None,
            }),
        };
        let has_floor =
            |target: &Target| family.status(*target).is_some_and(|one| one.pods_min > 0);
        let deadline = SignedDuration::from_secs(settings.progress_deadline_s().into());
        let wait = Wait::new(family, deadline, now);
        let tries = |target: Target| {
            let ready = family.status(target).map_or(0, |one| one.ready);
            (target, ready.saturating_mul(2).max(1))
        };
        let targets = aim.keys().copied();
        Self {
            kept: targets
                .clone()
                .filter(|target| until.is_some() && has_floor(target))
                .collect(),
            tries: targets.filter(|_| wait.is_late()).map(tries).collect(),
            is_loaded,
            only: None,
            max: settings.max_scale.unsigned_abs(),
            wait,
            is_rolled_out: steps::is_rolled_out(&family.app),
            is_now: family.app.moves_traffic_now(),
            before,
            next,
            aim,
            moving,
            until,
        }
    }

    /// The least number of pods of a target for now, besides the app's settings.
    pub(super) fn floor(&self, target: Target) -> u32 {
        let percent = share(&self.aim, target);
        let pods = self.pods(percent);
        if percent > share(&self.before, target) && self.may_start(target) {
            let most = self.tries.get(&target);
            most.map_or(pods, |most| pods.min(*most))
        } else if self.kept.contains(&target) {
            pods
        } else {
            0
        }
    }

    /// Why a target cannot have its next share yet.
    pub(super) fn lacks(&self, target: Target, status: &AppStatus) -> Option<String> {
        let lacks = self.counts(target, status)?;
        let all = self.moving.as_ref().map_or(1, |moving| moving.pods.max(1));
        let enough = status.ready.saturating_mul(100) / all;
        let is_more = enough > share(&self.before, target) && !self.has_others(target);
        if !self.wait.is_late() || !is_more {
            return Some(lacks);
        }
        let seconds = self.wait.deadline_s();
        Some(format!(
            "{lacks}; after {seconds} s enough for a share of {enough}%"
        ))
    }

    /// Whether pods of a target may be those of an earlier template, which are to get none of its share.
    fn has_others(&self, target: Target) -> bool {
        target == Target::Own && share(&self.before, target) == 0 && !self.is_rolled_out
    }

    /// The pods that a target lacks for its next share. A child's that at most doubles needs no further pods first, and the autoscaler
    /// follows: traffic returns to it when that of a later revision is taken away.
    fn counts(&self, target: Target, status: &AppStatus) -> Option<String> {
        let before = share(&self.before, target);
        let free = if target == Target::Own {
            before
        } else {
            2 * before
        };
        let percent = share(&self.next, target);
        let needed = self.pods(percent);
        let is_other = self.has_others(target);
        if self.is_now
            || percent <= free
            || !self.may_start(target)
            || (!is_other && self.has(status, needed))
        {
            return None;
        }
        let of = if is_other { " of its template" } else { "" };
        let text = format!("{} of {needed} pods{of} are ready", status.ready);
        let reason = status.reason.as_ref();
        Some(reason.map_or(text.clone(), |reason| format!("{text}, {reason}")))
    }

    /// Whether a target has nearly so many ready pods, or as many as it gets, or at the deadline half of them.
    fn has(&self, status: &AppStatus, needed: u32) -> bool {
        let reason = status.reason.as_deref().unwrap_or_default();
        let is_limited = NO_FURTHER_PODS.contains(&reason) && self.wait.has_started();
        status.ready >= needed - needed / 10
            || (is_limited && status.ready > 0)
            || (self.wait.is_late() && status.ready >= needed.div_ceil(2))
    }

    /// Why a target does not get a greater share that has waited for its pods until the deadline.
    pub(super) fn overdue(&self, target: Target, status: &AppStatus) -> Option<String> {
        let lacks = self.counts(target, status)?;
        let seconds = self.wait.deadline_s();
        let is_late = self.wait.is_late();
        is_late.then(|| format!("{lacks} after {seconds} s"))
    }

    /// No pods are started for shares that cannot be in force whatever is ready: but for a target to which traffic returns.
    pub(super) fn block(&mut self, but: Option<Target>) {
        self.only = Some(but.into_iter().collect());
    }

    /// Whether a greater share of a target needs pods first, and they are started.
    fn may_start(&self, target: Target) -> bool {
        let only = self.only.as_ref();
        self.is_loaded && only.is_none_or(|only| only.contains(&target))
    }

    /// Whether pods are started for any greater share.
    pub(super) fn may_start_any(&self) -> bool {
        self.is_loaded && self.only.as_ref().is_none_or(|only| !only.is_empty())
    }

    /// Whether the app's own pods get no traffic now.
    pub(super) fn own_is_idle(&self) -> bool {
        share(&self.before, Target::Own) == 0
    }

    /// Whether a target has a share, now or next.
    pub(super) fn has_share(&self, target: Target) -> bool {
        share(&self.before, target).max(share(&self.next, target)) > 0
    }

    /// The move after this plan: the split has changed, or shares wait for pods, or neither.
    pub(super) fn after(
        &self,
        is_changed: bool,
        waits: bool,
        now: Timestamp,
    ) -> Option<TrafficMove> {
        let moving = self.moving.clone()?;
        let since = self.wait.since.unwrap_or(now);
        Some(TrafficMove {
            since: if is_changed {
                Some(MicroTime(now))
            } else {
                moving.since
            },
            waits: waits.then_some(MicroTime(since)),
            ..moving
        })
    }

    /// The number of pods for a share.
    fn pods(&self, percent: u32) -> u32 {
        let Some(moving) = self.moving.as_ref().filter(|_| percent > 0) else {
            return 0;
        };
        let most = if self.max == 0 { u32::MAX } else { self.max };
        let pods = moving.pods.saturating_mul(percent).div_ceil(100);
        pods.clamp(1, most)
    }
}

/// The end of the time for which pods are kept: the autoscaler's window has only load with the last shares then. None if the clock was
/// set back since they were started.
fn end(settings: &Settings, moving: &TrafficMove, now: Timestamp) -> Option<Timestamp> {
    let window = Duration::from_secs(settings.stable_window_s.into());
    let kept = SignedDuration::try_from(window + TICK).ok()?;
    let since = moving.since.as_ref()?.0;
    let is_possible = since <= now.checked_add(kept).ok()?;
    since.checked_add(kept).ok().filter(|_| is_possible)
}

/// The pods that a target's load needs, also if they have failed or start yet.
fn pods_of(status: &AppStatus) -> u32 {
    status.ready.max(status.wanted)
}

fn share(shares: &Shares, target: Target) -> u32 {
    shares.get(&target).copied().unwrap_or(0)
}

fn of_rows(rows: &[Row]) -> Shares {
    of(rows
        .iter()
        .map(|row| (row.is_latest, row.revision, row.percent)))
}

fn in_force(split: &[TrafficStatus]) -> Shares {
    of(split
        .iter()
        .map(|row| (row.latest, row.revision, row.percent)))
}

/// Without targets, the app's own template has all traffic.
fn of(rows: impl ExactSizeIterator<Item = (bool, u32, u32)>) -> Shares {
    if rows.len() == 0 {
        return [(Target::Own, 100)].into();
    }
    let mut shares = Shares::new();
    for (is_own, revision, percent) in rows {
        let target = if is_own {
            Target::Own
        } else {
            Target::Child(revision)
        };
        *shares.entry(target).or_default() += percent;
    }
    shares
}
