//! All apps, and what each event means for them. Pure: time, names and events come in, actions come out.

mod events;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::{App, Change, Key, View, VipRange, vip};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::PodStatus;
use k8s_openapi::api::core::v1::Pod;

use crate::action::Action;
use crate::event::Event;
use crate::member::{Exposure, Member};
use crate::metrics::{Metrics, ModeValue, StateValue};
use crate::plan;
use crate::pod::{self, Names};
use crate::slot::Slot;
use crate::wake::Wakes;

/// How long a write that failed waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a controller is told at its start.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's VIP ranges.
    pub ranges: Vec<VipRange>,
    /// How long the activator is in the path before an app's last pod goes.
    pub scale_to_zero_grace: Duration,
    /// How often apps decide; those with a window of at most 10 s decide each second.
    pub tick: Duration,
    /// Of this control: only the newest may remove pods.
    pub epoch: u64,
    /// How long nodes that are in the store are waited for after a start: their lease.
    pub node_lease: Duration,
}

/// All apps.
pub struct Apps {
    pub(crate) config: Config,
    pub(crate) slots: BTreeMap<u32, Slot>,
    pub(crate) wakes: Wakes,
    pub(crate) metrics: Metrics,
    /// The VIP index of each app that exists.
    pub(crate) index: BTreeMap<Key, u32>,
    pods: BTreeMap<Key, Arc<Pod>>,
    on_node: BTreeMap<String, BTreeSet<Key>>,
    /// Nodes that the store shows, with whether it shows them ready.
    nodes: BTreeMap<String, bool>,
    /// Nodes that have a stream.
    up: BTreeSet<String>,
    /// Nodes of the store that were lost and have not come back.
    lost: BTreeSet<String>,
    /// Apps that time alone can change: the others cost nothing.
    awake: BTreeSet<u32>,
    /// Status writes under way, each with the newest one that waits.
    writes: HashMap<Key, Option<(String, PodStatus)>>,
    names: Names,
    seconds: u64,
    revision: u64,
}

impl Apps {
    /// The apps of a view, which go on as they are found. `seed` must differ from one start to the next.
    pub fn new(config: Config, view: &View, seed: u64, now: Boottime) -> (Self, Vec<Action>) {
        let mut apps = Self {
            config,
            slots: BTreeMap::new(),
            wakes: Wakes::default(),
            metrics: Metrics::default(),
            index: BTreeMap::new(),
            pods: BTreeMap::new(),
            on_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            up: BTreeSet::new(),
            lost: BTreeSet::new(),
            awake: BTreeSet::new(),
            writes: HashMap::new(),
            names: Names::new(seed),
            seconds: 0,
            revision: view.revision,
        };
        let mut actions = Vec::new();
        for change in View::default().changes_to(view) {
            // Nodes and apps come before pods, so that a pod finds its app.
            apps.change(view.revision, change, now, &mut actions);
        }
        let vips: Vec<u32> = apps.slots.keys().copied().collect();
        for vip in vips {
            if let Some(slot) = apps.slots.get_mut(&vip) {
                actions.extend(slot.resume(now));
            }
            apps.plan(vip, now, &mut actions);
        }
        (apps, actions)
    }

    /// Takes one event in and says what is to be done.
    pub fn apply(&mut self, now: Boottime, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Changes(batch) => self.changes(batch, now, &mut actions),
            Event::Demand { vip, at } => self.demand(vip, at, now, &mut actions),
            Event::Fleet(event) => self.fleet(event, now, &mut actions),
            Event::Second(stats) => self.second(&stats, now, &mut actions),
            Event::FirstByte { vip, at } => self.first_byte(vip, at),
            Event::Placed { vip, pod, node, at } => {
                if let Some(node) = node {
                    self.wakes.placed(vip, &pod.name, &node, at);
                }
            }
            Event::Created { vip, pod, written } => {
                self.created(vip, &pod, written, now, &mut actions);
            }
            Event::Published { vip, version } => self.published(vip, version, now, &mut actions),
            Event::Settled { vip, version } => self.settled(vip, version, now, &mut actions),
            Event::Deleted { vip, pod, gone } => self.deleted(vip, &pod, gone),
            Event::StatusWritten { pod } => self.status_written(&pod, &mut actions),
            Event::NodesOverdue => self.nodes_overdue(now, &mut actions),
        }
        actions
    }

    /// Plans one app, and notes whether time can still change it.
    fn plan(&mut self, vip: u32, now: Boottime, actions: &mut Vec<Action>) {
        let Some(slot) = self.slots.get_mut(&vip) else {
            return;
        };
        actions.extend(plan::plan(slot, now, &mut self.names));
        slot.rest(now);
        let counted = slot.app.as_ref().map(|_| {
            (
                StateValue::from(plan::status(slot).state),
                ModeValue::from(slot.mode()),
            )
        });
        self.metrics.moved(slot.counted, counted);
        slot.counted = counted;
        if slot.awake() {
            self.awake.insert(vip);
        } else {
            self.awake.remove(&vip);
            self.wakes.over(vip);
            if slot.app.is_none() && slot.published.under_way.is_none() {
                self.slots.remove(&vip);
            }
        }
    }

    fn changes(&mut self, batch: Vec<(u64, Change)>, now: Boottime, actions: &mut Vec<Action>) {
        let mut touched = BTreeSet::new();
        for (revision, change) in batch {
            touched.extend(self.change(revision, change, now, actions));
        }
        for vip in touched {
            if let Some(slot) = self.slots.get_mut(&vip) {
                slot.judge(now);
            }
            self.plan(vip, now, actions);
        }
    }

    fn change(
        &mut self,
        revision: u64,
        change: Change,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) -> Option<u32> {
        self.revision = self.revision.max(revision);
        match change {
            Change::App(key, Some(app)) => self.app(&key, app, now),
            Change::App(key, None) => self.app_gone(&key, revision),
            Change::Pod(key, pod) => self.pod(&key, pod, now, actions),
            Change::Node(key, node) => {
                if let Some(node) = node {
                    self.nodes.insert(key.name, crate::nodes::is_ready(&node));
                } else {
                    self.nodes.remove(&key.name);
                    self.lost.remove(&key.name);
                }
                None
            }
        }
    }

    fn app(&mut self, key: &Key, app: Arc<App>, now: Boottime) -> Option<u32> {
        let Some(vip) = app
            .vip()
            .and_then(|address| vip::index_of(&self.config.ranges, address))
        else {
            tracing::warn!(app = %key, vip = ?app.vip(), "the app has no VIP in any range: it is left alone");
            return None;
        };
        let vip = vip.0;
        let grace = self.config.scale_to_zero_grace;
        self.index.insert(key.clone(), vip);
        match self.slots.get_mut(&vip) {
            Some(slot) if slot.is_of(&app) => {
                let same = slot
                    .app
                    .as_ref()
                    .is_some_and(|known| known.spec == app.spec);
                if same {
                    slot.app = Some(app);
                    return None;
                }
                slot.configure(app, grace, now);
            }
            Some(slot) => slot.replace(key.clone(), app, grace, now),
            None => {
                self.slots
                    .insert(vip, Slot::new(vip, Some(app), key.clone(), grace, now));
            }
        }
        Some(vip)
    }

    fn app_gone(&mut self, key: &Key, revision: u64) -> Option<u32> {
        let vip = self.index.remove(key)?;
        let slot = self.slots.get_mut(&vip)?;
        slot.app = None;
        slot.buried_at = Some(revision);
        slot.decider = None;
        slot.want = 0;
        Some(vip)
    }

    /// A pod changed: its node is told, and its app looks again.
    fn pod(
        &mut self,
        key: &Key,
        pod: Option<Arc<Pod>>,
        now: Boottime,
        actions: &mut Vec<Action>,
    ) -> Option<u32> {
        let before = match &pod {
            Some(pod) => self.pods.insert(key.clone(), Arc::clone(pod)),
            None => self.pods.remove(key),
        };
        self.tell_node(key, before.as_deref(), pod.as_deref(), actions);
        let (owner, vip) = pod::owner_of(pod.as_deref().or(before.as_deref())?)?;
        let Some(pod) = pod else {
            self.slots.get_mut(&vip)?.members.remove(key);
            return Some(vip);
        };
        if !self.slots.contains_key(&vip) {
            self.orphan(vip, owner, now);
        }
        let slot = self.slots.get_mut(&vip)?;
        let seen = pod::seen(&pod);
        let member = slot.members.entry(key.clone()).or_insert_with(|| Member {
            // Who made it may have published it.
            exposure: Exposure::Listed,
            ..Member::new(now, seen.template.clone())
        });
        let was_ready = member.ready_since.is_some();
        member.ready_since = seen.ready.and(member.ready_since.or(Some(now)));
        if !was_ready && member.ready_since.is_some() {
            tracing::info!(app = %slot.key, pod = %key, "pod ready");
        }
        let lost = seen.node.clone().filter(|node| self.lost.contains(node));
        member.seen = Some(seen);
        // The scheduler may have chosen the node before it heard of the loss.
        if let Some(node) = lost.filter(|_| !member.failed) {
            member.failed = true;
            let message = format!("node {node} has no fleet stream");
            slot.backoff.failed(now, "NodeLost".to_owned(), message);
        }
        Some(vip)
    }

    /// A pod without an app: it goes once no node knows it.
    fn orphan(&mut self, vip: u32, owner: Key, now: Boottime) {
        let grace = self.config.scale_to_zero_grace;
        let mut slot = Slot::new(vip, None, owner, grace, now);
        slot.buried_at = Some(self.revision);
        self.slots.insert(vip, slot);
    }
}
