//! The traffic of an app that is divided between its revisions: which child apps exist, and which split is in force. Pure; the worker
//! ([`worker`]) reads and writes the store.
//!
//! A split in force names only children that exist, and one under load gets its first share when its pods are ready. A child that no
//! split needs any more is deleted after one without it is in force on all nodes. Until the split in force accounts for the app's
//! template, pods of that wait ([`App::awaits_split`]): they would get the share of the one before.

pub(crate) mod family;
mod load;
mod needs;
mod next;
mod report;
mod split;
mod start;
mod steps;
#[cfg(test)]
mod tests;
mod wait;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_autoscaler::Settings;
use dormouse_autoscaler::settings::Cluster;
use dormouse_cluster::app::RolloutStatus;
use dormouse_cluster::events::EventType;
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, AppStatus, Key, Object, State, Template, TrafficStatus, children};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::rolled_out;
use needs::{Needs, Target};
use next::Next;
use report::Obstacle;
use split::Row;

/// Wait until the name of a child is tried again that another app has.
const TAKEN_RETRY: SignedDuration = SignedDuration::from_secs(10);

/// An app whose traffic is divided, or was, with what its plan needs.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) app: App,
    /// The autoscaling settings of apps that set none.
    pub(crate) cluster: Arc<Cluster>,
    /// Its children, by the number of their revision.
    pub(crate) children: BTreeMap<u32, App>,
    /// The templates of revisions that have no child yet.
    pub(crate) templates: BTreeMap<u32, Template>,
    /// Revisions whose names other apps have.
    pub(crate) taken: BTreeSet<u32>,
    /// The first plan of this control.
    pub(crate) since: Timestamp,
}

/// What happened: type, reason in CamelCase, and message.
pub(crate) type Event = (EventType, &'static str, String);

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
    pub(crate) event: Option<Event>,
    /// Children that neither the manifest nor the split in force needs.
    pub(crate) surplus: Vec<Surplus>,
    /// When the next step of a gradual rollout is due.
    pub(crate) due: Option<Timestamp>,
}

/// A child that neither the manifest nor the split in force needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Surplus {
    pub(crate) child: Key,
    /// It has and wants no pods: no request is parked or served there.
    pub(crate) sleeps: bool,
}

/// The numbers of the revisions that need a child.
pub(crate) fn numbers(family: &Family, now: Timestamp) -> BTreeSet<u32> {
    let rollout = steps::next(&family.app, family.sleeps(), now);
    split::numbers(&split::rows(&family.app, rollout.as_ref()))
}

/// Plans an app.
pub(crate) fn plan(family: &Family, now: Timestamp) -> Plan {
    let app = &family.app;
    let before = app.status.clone().unwrap_or_default();
    let Next {
        rollout,
        rows,
        mut needs,
        ended,
    } = Next::new(family, now);
    let needed = split::numbers(&rows);
    if needed.iter().any(|number| family.is_impossible(*number)) {
        let returns = rollout.as_ref().filter(|rollout| rollout.is_return());
        needs.block(returns.map(|rollout| Target::Child(rollout.from)));
    }
    let mut plan = Plan {
        due: rollout
            .as_ref()
            .and_then(|rollout| steps::due(app, rollout)),
        ..Plan::default()
    };
    plan.due = plan.due.into_iter().chain(needs.until).min();
    family.update(&needs, &mut plan);
    let children = needed
        .iter()
        .filter_map(|number| family.prepare(*number, &needs, &mut plan));
    let mut obstacles: Vec<Obstacle> = children.collect();
    obstacles.extend(family.lacks_own_pods(&needs));
    if obstacles
        .iter()
        .any(|one| matches!(one, Obstacle::Taken(_)))
    {
        // The deletion of that app is not seen.
        plan.due = now.checked_add(TAKEN_RETRY).ok();
    }
    let mut status = before.clone();
    let split = if obstacles.is_empty() {
        Some(family.in_force(&rows))
    } else {
        family.taken_back(&needs, rollout.as_ref())
    };
    // Pods of a new template wait for the split only if they would get a share of the one before.
    if split.is_some() || needs.own_is_idle() {
        status.split_revision = app.spec.divides_traffic().then(|| app.revision_number());
    }
    if let Some(split) = split {
        status.traffic = split;
        status.rollout = rollout;
    }
    let returns = status
        .rollout
        .as_ref()
        .is_some_and(RolloutStatus::is_return);
    let is_changed = status.traffic != before.traffic;
    let waits = !is_changed && (returns || !obstacles.is_empty()) && needs.may_start_any();
    status.traffic_move = needs.after(is_changed, waits, now);
    let due = needs.wait.due(now).filter(|_| waits);
    plan.due = plan.due.into_iter().chain(due).min();
    family.set_floor(&mut status, needs.floor(Target::Own));
    report::condition(app, &mut status, obstacles.first(), now);
    rolled_out::set(app, &mut status, now);
    plan.takes_traffic = split::takes_traffic(&before.traffic, &status.traffic);
    let ended = ended.filter(|_| obstacles.is_empty());
    let ended = ended.map(|(rollout, lacks)| report::without_steps(app, &rollout, &lacks));
    plan.event = ended.or_else(|| report::event(app, &before, &status));
    plan.surplus = family.surplus(&needed);
    plan.status = (status != before).then(|| Box::new(status));
    plan
}

/// `scale.min` of a child, if it is not its parent's: one without a share may always sleep.
fn min(child: Target, needs: &Needs) -> Option<u32> {
    (!needs.has_share(child)).then_some(0)
}

impl Family {
    /// Whether no split with the child of this revision can come into force: another app has its name, or there is no such revision.
    fn is_impossible(&self, number: u32) -> bool {
        let is_missing = self.taken.contains(&number) || self.template(number).is_none();
        is_missing && !self.children.contains_key(&number)
    }

    /// Plans the child of a revision; returns why the split cannot be in force yet.
    fn prepare(&self, number: u32, needs: &Needs, plan: &mut Plan) -> Option<Obstacle> {
        let key = key_of(&self.app.key(), number);
        let target = Target::Child(number);
        let Some(child) = self.children.get(&number) else {
            if self.taken.contains(&number) {
                return Some(Obstacle::Taken(key.name));
            }
            let Some(template) = self.template(number) else {
                return Some(Obstacle::Missing(key.name));
            };
            let mut child = children::child(&self.app, number, template, min(target, needs));
            self.set_floor(child.status.get_or_insert_default(), needs.floor(target));
            plan.create.push(child);
            return Some(Obstacle::NotReady(
                key.name,
                "it is being created".to_owned(),
            ));
        };
        if child.vip().is_none() {
            return Some(Obstacle::NotReady(key.name, "it has no VIP".to_owned()));
        }
        let status = child.status.clone().unwrap_or_default();
        let lacks = needs.lacks(target, &status)?;
        Some(Obstacle::NotReady(key.name, lacks))
    }

    /// The split in force after a rollout has taken traffic back, although another target cannot get its share. It goes back to pods
    /// that are enough for it, unless the later revision fails.
    fn taken_back(
        &self,
        needs: &Needs,
        rollout: Option<&RolloutStatus>,
    ) -> Option<Vec<TrafficStatus>> {
        let from = Target::Child(rollout?.from);
        let is_failing = rollout?.failure.is_some();
        let lacks = needs.lacks(from, self.status(from)?).is_some();
        split::taken_back(&self.app, rollout).filter(|_| is_failing || !lacks)
    }

    /// Why the app's own pods cannot get their share yet.
    fn lacks_own_pods(&self, needs: &Needs) -> Option<Obstacle> {
        let status = self.app.status.clone().unwrap_or_default();
        let lacks = needs.lacks(Target::Own, &status)?;
        let key = key_of(&self.app.key(), self.app.revision_number());
        Some(Obstacle::NotReady(key.name, lacks))
    }

    /// Plans the children with other settings than their parent's, or another floor than they need.
    fn update(&self, needs: &Needs, plan: &mut Plan) {
        let changed = self.children.iter().filter_map(|(number, child)| {
            let target = Target::Child(*number);
            self.updated(child, min(target, needs), needs.floor(target))
        });
        plan.update.extend(changed);
    }

    /// The autoscaling settings in force.
    fn settings(&self) -> Settings {
        self.app.autoscaling(&self.cluster).settings
    }

    /// The status of a target.
    fn status(&self, target: Target) -> Option<&AppStatus> {
        let app = match target {
            Target::Own => Some(&self.app),
            Target::Child(number) => self.children.get(&number),
        };
        app?.status.as_ref()
    }

    /// Whether neither the app itself nor a target with traffic has or wants pods.
    fn sleeps(&self) -> bool {
        let traffic = self.traffic();
        let gets = traffic.iter().filter(|row| row.percent > 0 && !row.latest);
        let mut targets = gets
            .map(|row| Target::Child(row.revision))
            .chain([Target::Own]);
        targets.all(|target| self.status(target).is_none_or(is_asleep))
    }

    /// What pods of a revision run.
    fn template(&self, number: u32) -> Option<Template> {
        let own = || self.app.spec.template();
        let known = self.templates.get(&number).cloned();
        known.or_else(|| (number == self.app.revision_number()).then(own))
    }

    /// The split in force.
    fn traffic(&self) -> Vec<TrafficStatus> {
        let status = self.app.status.as_ref();
        status
            .map(|status| status.traffic.clone())
            .unwrap_or_default()
    }

    /// The child with the settings of its parent and this floor, if it has others.
    fn updated(&self, child: &App, pods_min: Option<u32>, floor: u32) -> Option<App> {
        let mut updated = child.clone();
        updated.spec = children::spec(&self.app.spec, child.spec.template(), pods_min);
        updated.spec.vip = child.spec.vip;
        children::copy_settings(&self.app, &mut updated);
        let known = child.status.as_ref().map_or(0, |status| status.pods_min);
        if updated.is_configured_as(child) && known == floor {
            return None;
        }
        if updated.spec != child.spec {
            let generation = &mut updated.metadata.generation;
            *generation = generation.map(|generation| generation + 1);
        }
        if known != floor {
            self.set_floor(updated.status.get_or_insert_default(), floor);
        }
        Some(updated)
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

    fn surplus(&self, needed: &BTreeSet<u32>) -> Vec<Surplus> {
        let traffic = self.traffic();
        let is_named = |child: &App| traffic.iter().any(|target| Some(target.vip) == child.vip());
        let children = self.children.iter();
        let surplus =
            children.filter(|(number, child)| !needed.contains(number) && !is_named(child));
        let surplus = surplus.map(|(_, child)| Surplus {
            child: child.key(),
            sleeps: child.status.as_ref().is_none_or(is_asleep),
        });
        surplus.collect()
    }
}

fn is_asleep(status: &AppStatus) -> bool {
    (status.state, status.wanted) == (State::Asleep, 0)
}
