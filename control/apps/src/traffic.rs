//! The traffic of an app that is divided between its revisions: which child apps exist, and which split is in force. Pure; the worker
//! ([`worker`]) reads and writes the store.
//!
//! A split in force names only children that exist, and one under load gets its first share when its pods are ready. A child that no
//! split needs any more is deleted after one without it is in force on all nodes. Until the split in force accounts for the app's
//! template, pods of that wait ([`App::awaits_split`]): they would get the share of the one before.

pub(crate) mod family;
mod report;
mod split;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_cluster::events::EventType;
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, AppStatus, Key, Object, Template, TrafficStatus, children};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::admission::PODS_LIMITED;
use crate::pod::UNSCHEDULABLE;

use report::Obstacle;
use split::Row;

/// Wait until the name of a child is tried again that another app has.
const TAKEN_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// An app whose traffic is divided, or was, with what its plan needs.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) app: App,
    /// Its children, by the number of their revision.
    pub(crate) children: BTreeMap<u32, App>,
    /// The templates of revisions that have no child yet.
    pub(crate) templates: BTreeMap<u32, Template>,
    /// Revisions whose names other apps have.
    pub(crate) taken: BTreeSet<u32>,
}

/// What is to be done for an app, in this order.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Children to create.
    pub(crate) create: Vec<App>,
    /// Children with other settings.
    pub(crate) update: Vec<App>,
    /// The app's next status; none: it stays as it is.
    pub(crate) status: Option<Box<AppStatus>>,
    /// The next split takes the traffic of a VIP away.
    pub(crate) takes_traffic: bool,
    /// What happened: type, reason in CamelCase, and message.
    pub(crate) event: Option<(EventType, &'static str, String)>,
    /// Children that neither the manifest nor the split in force needs.
    pub(crate) surplus: Vec<Key>,
    /// When the next step of a gradual rollout is due.
    pub(crate) due: Option<Timestamp>,
}

/// The numbers of the revisions that need a child.
pub(crate) fn numbers(app: &App, now: Timestamp) -> BTreeSet<u32> {
    let rollout = steps::next(app, now);
    split::numbers(&split::rows(app, rollout.as_ref()))
}

/// Plans an app.
pub(crate) fn plan(family: &Family, now: Timestamp) -> Plan {
    let app = &family.app;
    let rollout = steps::next(app, now);
    let rows = split::rows(app, rollout.as_ref());
    let needed = split::numbers(&rows);
    let mut plan = Plan {
        due: rollout
            .as_ref()
            .and_then(|rollout| steps::due(app, rollout)),
        ..Plan::default()
    };
    let obstacles: Vec<Obstacle> = needed
        .iter()
        .filter_map(|number| family.prepare(*number, &rows, &mut plan))
        .collect();
    if obstacles
        .iter()
        .any(|one| matches!(one, Obstacle::Taken(_)))
    {
        // The deletion of that app is not seen.
        plan.due = now.checked_add(TAKEN_RETRY).ok();
    }
    let before = app.status.clone().unwrap_or_default();
    let mut status = before.clone();
    if obstacles.is_empty() {
        status.traffic = family.in_force(&rows);
        status.split_revision = app.spec.divides_traffic().then(|| app.revision_number());
        status.rollout = rollout;
    }
    report::condition(app, &mut status, obstacles.first(), now);
    plan.takes_traffic = split::takes_traffic(&before.traffic, &status.traffic);
    plan.event = report::event(app, &before, &status);
    plan.surplus = family.surplus(&needed);
    plan.status = (status != before).then(|| Box::new(status));
    plan
}

impl Family {
    /// Plans the child of a revision; returns why the split cannot be in force yet.
    fn prepare(&self, number: u32, rows: &[Row], plan: &mut Plan) -> Option<Obstacle> {
        let key = key_of(&self.app.key(), number);
        let percent = split::percent_of(rows, number);
        let Some(child) = self.children.get(&number) else {
            if self.taken.contains(&number) {
                return Some(Obstacle::Taken(key.name));
            }
            let Some(template) = self.template(number) else {
                return Some(Obstacle::Missing(key.name));
            };
            let pods_min = self.pods_min(percent, self.warms(None, percent));
            let child = children::child(&self.app, number, template, pods_min);
            plan.create.push(child);
            return Some(Obstacle::NotReady(
                key.name,
                "it is being created".to_owned(),
            ));
        };
        let warms = self.warms(Some(child), percent);
        let pods_min = self.pods_min(percent, warms);
        plan.update.extend(self.updated(child, pods_min));
        let status = child.status.clone().unwrap_or_default();
        if child.vip().is_none() {
            return Some(Obstacle::NotReady(key.name, "it has no VIP".to_owned()));
        }
        (warms && !is_ready(&status)).then(|| {
            let wanted = status.wanted.max(1);
            let mut text = format!("{} of {wanted} pods are ready", status.ready);
            if let Some(reason) = &status.reason {
                text = format!("{text}, {reason}");
            }
            Obstacle::NotReady(key.name, text)
        })
    }

    /// What pods of a revision run.
    fn template(&self, number: u32) -> Option<Template> {
        let own = || self.app.spec.template();
        let known = self.templates.get(&number).cloned();
        known.or_else(|| (number == self.app.revision_number()).then(own))
    }

    /// Whether a child must have ready pods before it gets its first share: the app is under load.
    fn warms(&self, child: Option<&App>, percent: u32) -> bool {
        let in_force = child
            .and_then(App::vip)
            .is_some_and(|vip| split::has_traffic(&self.traffic(), vip));
        percent > 0 && !in_force && self.ready() > 0
    }

    /// The split in force.
    fn traffic(&self) -> Vec<TrafficStatus> {
        let status = self.app.status.as_ref();
        status
            .map(|status| status.traffic.clone())
            .unwrap_or_default()
    }

    /// The number of ready pods that get traffic now.
    fn ready(&self) -> u32 {
        let ready = |app: &App| app.status.as_ref().map_or(0, |status| status.ready);
        let traffic = self.traffic();
        let own = self.app.vip();
        let gets = |app: &App| {
            app.vip()
                .is_some_and(|vip| split::has_traffic(&traffic, vip))
        };
        let is_own = traffic.is_empty() || own.is_some_and(|vip| split::has_traffic(&traffic, vip));
        let children = self.children.values().filter(|child| gets(child));
        let children: u32 = children.map(ready).sum();
        children + if is_own { ready(&self.app) } else { 0 }
    }

    /// The least number of pods of a child with this share.
    fn pods_min(&self, percent: u32, warms: bool) -> u32 {
        let scale = &self.app.spec.scale;
        if percent == 0 {
            return 0;
        }
        if !warms {
            return scale.min;
        }
        let most = if scale.max == 0 { u32::MAX } else { scale.max };
        let share = (self.ready().saturating_mul(percent)).div_ceil(100);
        share.max(1).max(scale.min).min(most)
    }

    /// The child with the settings of its parent, if it has others.
    fn updated(&self, child: &App, pods_min: u32) -> Option<App> {
        let mut spec = children::spec(&self.app.spec, child.spec.template(), pods_min);
        spec.vip = child.spec.vip;
        if spec == child.spec {
            return None;
        }
        let mut child = child.clone();
        child.spec = spec;
        child.metadata.generation = child.metadata.generation.map(|generation| generation + 1);
        Some(child)
    }

    /// The split that these rows are.
    fn in_force(&self, rows: &[Row]) -> Vec<TrafficStatus> {
        let vip_of = |row: &Row| {
            if row.is_latest {
                return self.app.vip();
            }
            self.children.get(&row.revision).and_then(App::vip)
        };
        let targets = rows.iter().filter_map(|row| Some(row.status(vip_of(row)?)));
        targets.collect()
    }

    fn surplus(&self, needed: &BTreeSet<u32>) -> Vec<Key> {
        let traffic = self.traffic();
        let is_named = |child: &App| traffic.iter().any(|target| Some(target.vip) == child.vip());
        let children = self.children.iter();
        children
            .filter(|(number, child)| !needed.contains(number) && !is_named(child))
            .map(|(_, child)| child.key())
            .collect()
    }
}

/// Reasons for which a child gets no further pods.
const NO_FURTHER_PODS: [&str; 2] = [PODS_LIMITED, UNSCHEDULABLE];

/// Whether a child has the pods that it wants, or as many as it gets.
fn is_ready(status: &AppStatus) -> bool {
    let reason = status.reason.as_deref().unwrap_or_default();
    status.ready > 0 && (status.ready >= status.wanted || NO_FURTHER_PODS.contains(&reason))
}
