//! Sleeping apps: compact records, and the reads of the store with which they wake.
//!
//! An app has either an entry in the table of sleeping apps or a full record. A wake reads the app from the store once:
//! what arrives for the app meanwhile is kept in [`Reading`]. A change of the app that arrives first replaces the read.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_cluster::{App, Key, Object, StoredApp};
use dormouse_fleet::Boottime;

use super::turn::Turn;
use super::{Apps, RETRY_AFTER};
use crate::action::Action;
use crate::event::{AppRead, PodChange};
use crate::metrics::ASLEEP;
use crate::plan;
use crate::record::AppRecord;
use crate::sleep::{Sleeper, milliseconds};

/// A sleeping app that is being read from the store, and what arrived for it.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// A packet or a request arrived: the app wakes.
    wakes: bool,
    /// Its settings have changed: it may have pods without load.
    starts: bool,
    /// The node of the first packet, and its time.
    woke: Option<(String, Boottime)>,
    /// The time of the first parked request.
    parked: Option<Boottime>,
    /// The newest changes of the app's pods that exist.
    pods: BTreeMap<Key, PodChange>,
    /// The pods were there at the start of control: they are adopted.
    adopts: bool,
    /// After a failed read: the time of the next one.
    retry_at: Option<Boottime>,
}

impl Reading {
    /// A node's kernel reported the first packet. The earliest report counts.
    pub(super) fn seen(&mut self, node: &str, at: Boottime) {
        if self.woke.as_ref().is_none_or(|(_, woke)| at < *woke) {
            self.woke = Some((node.to_owned(), at));
        }
    }

    /// A pod was deleted.
    pub(super) fn pod_gone(&mut self, pod: &Key) {
        self.pods.remove(pod);
    }

    /// A pod's node was lost.
    pub(super) fn pod_lost(&mut self, pod: &Key) {
        if let Some(change) = self.pods.get_mut(pod) {
            change.on_lost_node = true;
        }
    }

    /// The first request was parked.
    pub(super) fn parked(&mut self, at: Boottime) {
        self.parked.get_or_insert(at);
    }
}

impl Apps {
    /// The VIP of an app.
    pub(crate) fn vip_of(&self, key: &Key) -> Option<u32> {
        let awake = self.index.get(key).copied();
        awake.or_else(|| self.sleep.vip_of(key))
    }

    /// The port of an app.
    pub(super) fn port_of(&self, key: &Key) -> Option<u16> {
        if let Some(vip) = self.index.get(key) {
            return Some(self.records.get(vip)?.app.as_ref()?.spec.port);
        }
        self.port_at(self.sleep.vip_of(key)?)
    }

    /// The port of the app with a VIP.
    pub(super) fn port_at(&self, vip: u32) -> Option<u16> {
        if let Some(record) = self.records.get(&vip) {
            return Some(record.app.as_ref()?.spec.port);
        }
        self.sleep.get(vip).map(|sleeper| sleeper.port)
    }

    /// Whether a full record has this state of its app or a later one. Most changes are such: the effects of this control's own
    /// writes, whose responses have the app decoded.
    pub(super) fn is_known(&self, key: &Key, vip: u32, stored: &StoredApp) -> bool {
        let record = self.records.get(&vip).filter(|_| self.listing.is_none());
        let known = record.and_then(|record| record.revision_of(key, stored));
        known.is_some_and(|known| known >= stored.revision)
    }

    /// An app was created or changed, or is in a list. Returns its VIP if its record has to be planned.
    pub(super) fn app(
        &mut self,
        key: &Key,
        vip: u32,
        stored: Box<StoredApp>,
        turn: &mut Turn,
    ) -> Option<u32> {
        if let Some(listing) = &mut self.listing {
            listing.seen.insert(vip);
        }
        let elsewhere = self.vip_of(key).filter(|before| *before != vip);
        if let Some(before) = elsewhere {
            // It was deleted, and created again with another VIP.
            let deleted = stored.revision.saturating_sub(1);
            if self.app_gone(key, deleted, turn).is_some() {
                self.plan(before, turn);
            }
        }
        if self.records.contains_key(&vip) {
            return self.awake_app(vip, key, stored, turn);
        }
        let uid = self.sleep.uid(&stored.uid);
        let known = self.sleep.get(vip).copied();
        match known.filter(|known| known.uid == uid && self.sleep.vip_of(key) == Some(vip)) {
            Some(known) => self.sleeping_app(vip, &known, &stored, turn),
            None => self.new_app(vip, key, &stored, turn),
        }
    }

    /// A change of an app that has a full record.
    fn awake_app(
        &mut self,
        vip: u32,
        key: &Key,
        stored: Box<StoredApp>,
        turn: &mut Turn,
    ) -> Option<u32> {
        let record = self.records.get_mut(&vip)?;
        if let Some(known) = record.revision_of(key, &stored) {
            if known >= stored.revision {
                return None;
            }
            if record.published.in_progress.is_some() {
                record.published.changed = Some(stored);
                return None;
            }
        }
        let Some(app) = decoded(key, &stored) else {
            return self.app_gone(key, stored.revision, turn);
        };
        let settings = &self.shared.settings;
        let record = self.records.get_mut(&vip)?;
        self.index.insert(key.clone(), vip);
        if !record.is_of(&app) {
            record.unbound(&self.shared.admission);
            record.replace(key.clone(), app, settings, turn.now);
            return Some(vip);
        }
        let known = record.app.as_ref();
        if known.is_some_and(|known| known.is_configured_as(&app)) {
            let is_planned =
                app.divides_traffic() || !record.split.is_empty() || record.has_other_floor(&app);
            let split = |app: &Arc<App>| app.status.as_ref().map(|status| status.traffic.clone());
            if known.and_then(split) != split(&app) {
                // The write that failed had another split: the store may be well.
                record.published.retry_at = None;
            }
            record.app = Some(app);
            return is_planned.then_some(vip);
        }
        record.configure(app, settings, turn.now);
        Some(vip)
    }

    /// A change of a sleeping app.
    fn sleeping_app(
        &mut self,
        vip: u32,
        known: &Sleeper,
        stored: &StoredApp,
        turn: &mut Turn,
    ) -> Option<u32> {
        if stored.revision <= known.revision {
            return None;
        }
        let starts = stored.pods_idle(&self.shared.settings.get()) > 0;
        if starts || stored.has_traffic || self.reading.contains_key(&vip) {
            let key = self.sleep.key(vip)?;
            let Some(app) = decoded(&key, stored) else {
                return self.app_gone(&key, stored.revision, turn);
            };
            self.rouse(vip, app, turn);
            if let Some(record) = self.records.get_mut(&vip).filter(|_| starts) {
                record.start(turn.now);
            }
            return Some(vip);
        }
        let changed = known.routed_as(stored);
        let key = self.sleep.key(vip)?;
        self.sleep.insert(vip, &key, changed);
        Self::announce(vip, stored, turn);
        None
    }

    /// An app that was not known, or another one than had the VIP before.
    fn new_app(&mut self, vip: u32, key: &Key, stored: &StoredApp, turn: &mut Turn) -> Option<u32> {
        // The entry of the new app is newer.
        let deleted = stored.revision.saturating_sub(1);
        if let Some(before) = self.sleep.key(vip).filter(|before| before != key) {
            self.port_moved(self.port_of(&before), None, turn);
            self.app_gone(&before, deleted, turn);
        }
        self.app_gone(key, deleted, turn);
        let settings = self.shared.settings.get();
        // In a list are apps that have slept before, also before the cluster's initial scale was set.
        let is_new = self.listing.is_none() || stored.is_unseen(&settings);
        let starts =
            stored.pods_idle(&settings) > 0 || (is_new && stored.pods_at_start(&settings) > 0);
        if stored.asleep && !starts && !stored.has_traffic {
            let sleeper = self.sleep.sleeper(stored);
            self.sleep.insert(vip, key, sleeper);
            self.shared.metrics.moved(None, Some(ASLEEP));
            Self::announce(vip, stored, turn);
            return None;
        }
        let app = decoded(key, stored)?;
        let mut record = AppRecord::new(vip, key.clone(), turn.now);
        if !is_new {
            record.is_not_new();
        }
        record.configure(app, &self.shared.settings, turn.now);
        self.index.insert(key.clone(), vip);
        self.records.insert(vip, Box::new(record));
        Some(vip)
    }

    /// An app was deleted. Returns its VIP if its record has to be planned.
    pub(super) fn app_gone(&mut self, key: &Key, version: u64, turn: &mut Turn) -> Option<u32> {
        if let Some(vip) = self.index.remove(key) {
            let record = self.records.get_mut(&vip)?;
            record.app = None;
            record.published.changed = None;
            record.deleted_at = Some(version);
            record.decider = None;
            record.want = 0;
            return Some(vip);
        }
        let vip = self.sleep.vip_of(key)?;
        self.sleep.remove(vip);
        self.reading.remove(&vip);
        self.shared.metrics.moved(Some(ASLEEP), None);
        turn.actions.push(Action::Withdraw { vip, version });
        turn.actions.push(Action::Route {
            vip,
            version,
            route: None,
        });
        None
    }

    /// Publishes the entry of a sleeping app.
    fn announce(vip: u32, stored: &StoredApp, turn: &mut Turn) {
        turn.actions.push(Action::Announce {
            vip,
            version: stored.revision,
            entry: plan::asleep(stored.port),
        });
    }

    /// Reads a sleeping app from the store, unless it is being read. None: no app with this VIP sleeps.
    pub(super) fn read(&mut self, vip: u32, turn: &mut Turn) -> Option<&mut Reading> {
        let app = self.sleep.key(vip)?;
        let reading = self.reading.entry(vip).or_insert_with(|| {
            turn.actions.push(Action::Read { vip, app });
            Reading::default()
        });
        Some(reading)
    }

    /// Reads a sleeping app, which then wakes.
    pub(super) fn read_to_wake(&mut self, vip: u32, turn: &mut Turn) {
        if let Some(reading) = self.read(vip, turn) {
            reading.wakes = true;
        }
    }

    /// A sleeping app has pods without load by the cluster's new settings.
    pub(super) fn start_sleeping(&mut self, vip: u32, turn: &mut Turn) {
        if let Some(record) = self.records.get_mut(&vip) {
            record.update_settings(&self.shared.settings, turn.now);
            if record.can_wake() && record.settings.pods_idle() > 0 {
                record.start(turn.now);
                self.plan(vip, turn);
            }
        } else if let Some(reading) = self.read(vip, turn) {
            reading.starts = true;
        }
    }

    /// The tenant of an app that a packet or a request wakes; none if the app is awake or on its way.
    pub(super) fn sleeping_tenant(&self, vip: u32) -> Option<String> {
        if let Some(record) = self.records.get(&vip) {
            return record.can_wake().then(|| record.key.namespace.clone());
        }
        let wakes = |reading: &Reading| reading.wakes;
        if self.reading.get(&vip).is_some_and(wakes) {
            return None;
        }
        Some(self.sleep.key(vip)?.namespace)
    }

    /// A pod of a sleeping app is in the store.
    pub(super) fn read_for_pod(&mut self, change: PodChange, turn: &mut Turn) {
        let adopts = self.listing.is_some();
        if let Some(reading) = self.read(change.vip, turn) {
            reading.adopts |= adopts;
            reading.pods.insert(change.key.clone(), change);
        }
    }

    /// The read of an app has ended.
    pub(super) fn app_read(&mut self, vip: u32, read: AppRead, turn: &mut Turn) {
        let (Some(reading), Some(known)) = (self.reading.get_mut(&vip), self.sleep.get(vip)) else {
            return;
        };
        match read {
            AppRead::Failed => reading.retry_at = Some(turn.now + RETRY_AFTER),
            // The deletion follows as a change.
            AppRead::Absent => drop(self.reading.remove(&vip)),
            AppRead::Found(app) => {
                let uid = self
                    .sleep
                    .uid(app.metadata.uid.as_deref().unwrap_or_default());
                if known.uid != uid {
                    // Another app of the same name follows as a change.
                    self.reading.remove(&vip);
                } else if app.revision() < known.revision {
                    reading.retry_at = Some(turn.now);
                } else {
                    self.rouse(vip, app, turn);
                    self.plan(vip, turn);
                }
            }
        }
    }

    /// Repeats the reads that failed.
    pub(super) fn read_again(&mut self, turn: &mut Turn) {
        for (vip, reading) in &mut self.reading {
            if reading.retry_at.take_if(|at| *at <= turn.now).is_some()
                && let Some(app) = self.sleep.key(*vip)
            {
                turn.actions.push(Action::Read { vip: *vip, app });
            }
        }
    }

    /// Replaces the compact record of an app by a full one, and applies what arrived during its read.
    fn rouse(&mut self, vip: u32, app: Arc<App>, turn: &mut Turn) {
        let reading = self.reading.remove(&vip).unwrap_or_default();
        let Some((key, sleeper)) = self.sleep.remove(vip) else {
            return;
        };
        let mut record = AppRecord::new(vip, key.clone(), turn.now);
        let status = app.status.clone().unwrap_or_default();
        let is_known = app.revision() == sleeper.revision;
        record.rouse(app, &sleeper, &self.shared.settings);
        if reading.pods.is_empty() && is_known {
            record.asleep_as_published(sleeper.revision);
        }
        self.index.insert(key, vip);
        self.records.insert(vip, Box::new(record));
        for change in reading.pods.into_values() {
            self.member(change, turn.now);
        }
        if reading.adopts
            && let Some(record) = self.records.get_mut(&vip)
        {
            record.adopt(&status, turn.now);
        }
        if reading.wakes {
            self.wake_now(vip, turn);
        }
        if reading.starts
            && let Some(record) = self.records.get_mut(&vip)
            && record.can_wake()
            && record.settings.pods_idle() > 0
        {
            record.start(turn.now);
        }
        if let Some((node, at)) = reading.woke {
            self.wakes.seen(vip, &node, at);
        }
        if let Some(at) = reading.parked {
            self.wakes.parked(vip, at);
        }
    }

    /// Replaces the full record of an app that sleeps by a compact one.
    pub(super) fn fold(&mut self, vip: u32) {
        let Some(record) = self.records.get(&vip) else {
            return;
        };
        let Some(app) = record.app.as_ref().filter(|_| record.is_folded_up()) else {
            return;
        };
        let uid = self
            .sleep
            .uid(app.metadata.uid.as_deref().unwrap_or_default());
        let sleeper = Sleeper {
            revision: record.published.version.max(app.revision()),
            uid,
            activator_since_ms: record.kpa.activator_since_ms,
            slept_at: record.slept_at.unwrap_or_default(),
            port: app.spec.port,
            container_concurrency: app.spec.scale.container_concurrency,
            timeout_ms: milliseconds(app.spec.timeout()),
            wake_timeout_ms: milliseconds(app.spec.wake_timeout()),
        };
        let key = record.key.clone();
        self.records.remove(&vip);
        self.index.remove(&key);
        self.sleep.insert(vip, &key, sleeper);
    }
}

/// The whole app. An app that cannot be decoded is treated as deleted; only writes that bypass the API cause one.
fn decoded(key: &Key, stored: &StoredApp) -> Option<Arc<App>> {
    stored
        .app()
        .inspect_err(|error| tracing::warn!(app = %key, %error, "ignored a malformed app"))
        .ok()
        .map(Arc::new)
}
