//! Apps in the store: found by name and VIP, created, changed and deleted, asleep and awake.

use std::sync::Arc;

use dormouse_cluster::{App, Key, StoredApp};

use super::Apps;
use super::turn::Turn;
use crate::action::Action;
use crate::metrics::ASLEEP;
use crate::plan;
use crate::record::AppRecord;
use crate::sleep::Sleeper;

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
}

/// The whole app. An app that cannot be decoded is treated as deleted; only writes that bypass the API cause one.
fn decoded(key: &Key, stored: &StoredApp) -> Option<Arc<App>> {
    stored
        .app()
        .inspect_err(|error| tracing::warn!(app = %key, %error, "ignored a malformed app"))
        .ok()
        .map(Arc::new)
}
