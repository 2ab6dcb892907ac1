//! What each event means, beyond changes of the cluster.

use std::collections::BTreeMap;

use dormouse_cluster::{Key, Mode};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::{Count, PodStatus};
use dormouse_fleet::root::Event as FleetEvent;

use super::{Apps, RETRY_AFTER};
use crate::action::Action;
use crate::backoff::WELL_AFTER;
use crate::event::Proxied;
use crate::member::Member;
use crate::plan;
use crate::pod;
use crate::settings::SHORT_WINDOW;
use crate::slot::ms;

impl Apps {
    /// A request is parked: the app wakes, unless it does already.
    pub(super) fn demand(
        &mut self,
        vip: u32,
        at: Boottime,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) {
        self.wake(vip, now, actions);
        self.wakes.parked(vip, at);
    }

    fn wake(&mut self, vip: u32, now: Boottime, actions: &mut Vec<Action>) {
        let Some(slot) = self.slots.get_mut(&vip) else {
            return;
        };
        if slot.wake(now) {
            tracing::info!(app = %slot.key, "waking");
            self.wakes.over(vip);
            self.wakes.begin(vip, slot.key.clone(), now);
            self.plan(vip, now, actions);
        }
    }

    pub(super) fn fleet(&mut self, event: FleetEvent, now: Boottime, actions: &mut Vec<Action>) {
        match event {
            FleetEvent::Woke { node, vip, at } => self.woke(vip, &node, at, now, actions),
            FleetEvent::Counts { counts, .. } => self.counts(&counts),
            FleetEvent::Pod { node, status } => self.pod_said(node, status, actions),
            FleetEvent::NodeUp {
                node,
                status,
                boot_id,
            } => {
                self.up.insert(node.clone());
                self.lost.remove(&node);
                let specs = self.specs_on(&node);
                actions.push(Action::NodeUp {
                    node: node.clone(),
                    status: Box::new(status),
                    boot_id,
                });
                actions.push(Action::SyncPods { node, specs });
            }
            FleetEvent::NodeDown { node } => self.node_down(node, now, actions),
        }
    }

    /// The kernel saw the first packet. One that came before the app fell asleep belongs to the wake before.
    fn woke(
        &mut self,
        vip: u32,
        node: &str,
        at: Boottime,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) {
        let late = self
            .slots
            .get(&vip)
            .and_then(|slot| slot.slept_at)
            .is_some_and(|slept| at < slept);
        if !late {
            self.wake(vip, now, actions);
            self.wakes.seen(vip, node, at);
        }
    }

    /// Connections that went straight to pods.
    fn counts(&mut self, counts: &[Count]) {
        for count in counts.iter().filter(|count| count.interval_ns > 0) {
            if let Some(slot) = self.slots.get_mut(&count.vip) {
                let seconds = count.interval_ns as f64 / 1e9;
                let concurrency = count.connection_ns as f64 / count.interval_ns as f64;
                slot.connected(concurrency, count.connections as f64 / seconds);
            }
        }
    }

    fn pod_said(&mut self, node: String, status: PodStatus, actions: &mut Vec<Action>) {
        let key = Key::new(status.namespace.clone(), status.name.clone());
        let Some(vip) = self
            .pods
            .get(&key)
            .and_then(|pod| pod::owner_of(pod))
            .map(|(_, vip)| vip)
        else {
            return self.write(key, node, status, actions);
        };
        if let Some(stages) = &status.stages {
            self.wakes.staged(vip, &key.name, &node, stages);
        }
        self.write(key, node, status, actions);
    }

    /// One write a pod at a time; the newest wins.
    fn write(&mut self, pod: Key, node: String, status: PodStatus, actions: &mut Vec<Action>) {
        if !self.pods.contains_key(&pod) {
            return;
        }
        if let Some(waiting) = self.writes.get_mut(&pod) {
            *waiting = Some((node, status));
            return;
        }
        self.writes.insert(pod.clone(), None);
        actions.push(Action::PodStatus {
            pod,
            node,
            status: Box::new(status),
        });
    }

    pub(super) fn status_written(&mut self, pod: &Key, actions: &mut Vec<Action>) {
        if let Some(Some((node, status))) = self.writes.remove(pod) {
            self.write(pod.clone(), node, status, actions);
        }
    }

    /// A second has passed: apps that are awake are measured, and decide when it is their turn.
    pub(super) fn second(&mut self, stats: &[Proxied], now: Boottime, actions: &mut Vec<Action>) {
        self.seconds += 1;
        let every = self.config.tick.as_secs().max(1);
        let stats: BTreeMap<u32, &Proxied> = stats.iter().map(|stat| (stat.vip, stat)).collect();
        // A request that waits for an app which is thought to sleep wakes it, should its demand have been lost.
        for stat in stats.values().filter(|stat| stat.concurrency > 0.0) {
            self.wake(stat.vip, now, actions);
        }
        for vip in self.awake.clone() {
            let Some(slot) = self.slots.get_mut(&vip) else {
                continue;
            };
            let stat = stats
                .get(&vip)
                .map_or((0.0, 0.0), |stat| (stat.concurrency, stat.requests));
            slot.measured(now, stat.0, stat.1);
            let short = u64::from(slot.settings.stable_window_s) <= SHORT_WINDOW.as_secs();
            if short || self.seconds.is_multiple_of(every) {
                let want = slot.want;
                slot.decide(now);
                slot.judge(now);
                self.metrics
                    .decided(slot.decision.as_ref(), want, slot.want);
            }
            let well = |member: &Member| {
                member
                    .ready_since
                    .is_some_and(|since| now.since(since) >= WELL_AFTER)
            };
            if slot.members.values().any(well) {
                slot.backoff.clear();
            }
            self.plan(vip, now, actions);
        }
    }

    pub(super) fn first_byte(&mut self, vip: u32, at: Boottime) {
        if let Some(wake) = self.wakes.answered(vip, at) {
            self.metrics.woken(wake);
        }
    }

    /// Apps whose wake still lacks its answer.
    pub fn unanswered(&self) -> Vec<u32> {
        self.awake
            .iter()
            .copied()
            .filter(|vip| self.wakes.unanswered(*vip))
            .collect()
    }

    pub(super) fn created(
        &mut self,
        vip: u32,
        pod: &Key,
        written: bool,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) {
        let Some(slot) = self.slots.get_mut(&vip) else {
            return;
        };
        if !written {
            slot.members.remove(pod);
            slot.backoff.failed(
                now,
                "CreateFailed".to_owned(),
                "the pod could not be written to the store".to_owned(),
            );
        }
        self.plan(vip, now, actions);
    }

    pub(super) fn published(
        &mut self,
        vip: u32,
        version: Option<u64>,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) {
        let Some(slot) = self.slots.get_mut(&vip) else {
            return;
        };
        let Some((status, listing)) = slot.published.under_way.take() else {
            return;
        };
        match version {
            Some(version) => {
                slot.published.status = Some(status);
                if let Some(listing) = listing {
                    if listing.entry.mode == Mode::Serve {
                        slot.kpa.set_activator_in_path(ms(now), false);
                    }
                    plan::written(slot, version, Some(listing));
                }
            }
            None => slot.published.retry_at = Some(now + RETRY_AFTER),
        }
        self.plan(vip, now, actions);
    }

    pub(super) fn settled(
        &mut self,
        vip: u32,
        version: u64,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) {
        let Some(slot) = self.slots.get_mut(&vip) else {
            return;
        };
        slot.published.settling = None;
        slot.published.settled = slot.published.settled.max(version);
        if slot.proxied_everywhere() {
            slot.kpa.set_activator_in_path(ms(now), true);
        }
        slot.judge(now);
        self.plan(vip, now, actions);
    }

    /// A removal that failed is tried again with the next second; one that succeeded shows as a change of the cluster.
    pub(super) fn deleted(&mut self, vip: u32, pod: &Key, gone: bool) {
        let member = self
            .slots
            .get_mut(&vip)
            .and_then(|slot| slot.members.get_mut(pod));
        if let Some(member) = member.filter(|_| !gone) {
            member.deleting = false;
        }
    }
}
