//! Sleeping apps: compact records, and the reads of the store with which they wake.
//!
//! An app has either an entry in the table of sleeping apps or a full record. A wake reads the app from the store once:
//! what arrives for the app meanwhile is kept in [`Reading`]. A change of the app that arrives first replaces the read.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_cluster::{App, Key, Object};
use dormouse_fleet::Boottime;

use super::turn::Turn;
use super::{Apps, RETRY_AFTER};
use crate::action::Action;
use crate::event::{AppRead, PodChange};
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
    pub(super) fn rouse(&mut self, vip: u32, app: Arc<App>, turn: &mut Turn) {
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
            && record.has_own_pods()
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
