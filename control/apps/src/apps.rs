//! All apps and the handling of events. Pure: times, names and events in, actions out.

mod admit;
mod awake;
mod events;
mod listing;
mod load;
mod ports;
mod sleeping;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use dormouse_cluster::{Key, VipRange};
use dormouse_fleet::Boottime;

use crate::action::{Action, Failure};
use crate::admission::{self, Limits};
use crate::event::{Change, Event, PodChange, ShardEvent};
use crate::member::{Exposure, Member};
use crate::metrics::{Metrics, ModeValue, StateValue};
use crate::plan;
use crate::pod::{self, Names};
use crate::record::AppRecord;
use crate::sleep::Sleep;
use crate::wake::Wakes;
use awake::Awake;
pub(crate) use awake::slice_of;
pub use awake::{SLICE, SLICES};
use listing::Listing;
use load::Loads;
use ports::Ports;
use sleeping::Reading;
use turn::Turn;

/// Wait before a failed write is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The controller's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's VIP ranges.
    pub ranges: Vec<VipRange>,
    /// Time in proxy mode before an app's last pod is removed.
    pub scale_to_zero_grace: Duration,
    /// Interval of scaling decisions; apps with a window of at most 10 s decide every second.
    pub tick: Duration,
    /// Epoch of this control; only the highest may remove pods.
    pub epoch: u64,
    /// The node lease: for this long, nodes that are in the store may connect after a start.
    pub node_lease: Duration,
    /// The limits of wakes and pods.
    pub limits: Limits,
}

/// All apps.
pub struct Apps {
    pub(crate) config: Config,
    /// The apps that do not sleep, and those whose state is being published.
    pub(crate) records: BTreeMap<u32, AppRecord>,
    /// All others.
    pub(crate) sleep: Sleep,
    /// The sleeping apps that are being read from the store.
    reading: HashMap<u32, Reading>,
    /// The list of the cluster in progress.
    listing: Option<Listing>,
    is_listed: bool,
    pub(crate) wakes: Wakes,
    pub(crate) metrics: Metrics,
    /// Wakes that wait for the rates.
    pub(crate) waiting: admission::Wakes,
    /// The pods of all tenants.
    bounds: admission::Pods,
    /// The VIP index of each app in `records` that exists.
    index: BTreeMap<Key, u32>,
    awake: Awake,
    loads: Loads,
    ports: Ports,
    names: Names,
    seconds: u64,
    revision: u64,
}

impl Apps {
    /// No apps: a list of the cluster is expected first. `seed` must differ between starts.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            waiting: admission::Wakes::new(config.limits.wakes),
            bounds: admission::Pods::new(config.limits),
            config,
            records: BTreeMap::new(),
            sleep: Sleep::default(),
            reading: HashMap::new(),
            listing: None,
            is_listed: false,
            wakes: Wakes::default(),
            metrics: Metrics::default(),
            index: BTreeMap::new(),
            awake: Awake::default(),
            loads: Loads::default(),
            ports: Ports::default(),
            names: Names::new(seed),
            seconds: 0,
            revision: 0,
        }
    }

    /// Whether the passing of time changes nothing.
    pub fn is_idle(&self) -> bool {
        self.awake.is_empty() && self.reading.is_empty() && self.loads.is_empty()
    }

    /// Handles one event and returns the actions.
    pub fn apply(&mut self, now: Boottime, event: ShardEvent) -> Vec<Action> {
        let mut turn = Turn::new(now);
        match event {
            ShardEvent::Changes(batch) => self.changes(batch, &mut turn),
            ShardEvent::Wanted(vips) => {
                let answers = vips.into_iter().filter_map(|vip| self.wanted(vip));
                turn.actions.extend(answers);
            }
            ShardEvent::Counts(counts) => self.counts(&counts),
            ShardEvent::Load(loads) => self.loads.add(loads),
            ShardEvent::PodsLost(pods) => self.pods_lost(pods, &mut turn),
            ShardEvent::Slice(slice) => self.slice(slice, &mut turn),
            ShardEvent::Admission => {}
            ShardEvent::App(event) => self.event(event, &mut turn),
        }
        self.admit(&mut turn);
        self.take_turns(&mut turn);
        turn.actions
    }

    fn event(&mut self, event: Event, turn: &mut Turn) {
        match event {
            Event::Demand { vip, at } => self.demand(vip, at, turn),
            Event::Want { vip, port, at } => self.want((vip, port), at, turn),
            Event::Woke {
                vip,
                node,
                at,
                port,
                protocol,
            } => {
                if self.serves(vip, port, protocol) {
                    self.woke(vip, &node, at, turn);
                }
            }
            Event::FirstByte { vip, at } => self.first_byte(vip, at),
            Event::Staged {
                vip,
                pod,
                node,
                stages,
            } => self.wakes.staged(vip, &pod, &node, &stages),
            Event::Placed { vip, pod, node, at } => {
                if let Some(node) = node {
                    self.wakes.placed(vip, &pod.name, &node, at);
                }
            }
            Event::Created { vip, pod, written } => self.created(vip, &pod, written, turn),
            Event::Published { vip, version } => self.published(vip, version, turn),
            Event::Settled { vip, version } => self.settled(vip, version, turn),
            Event::Deleted { vip, pod, gone } => self.deleted(vip, &pod, gone),
            Event::AppRead { vip, read } => self.app_read(vip, read, turn),
        }
    }

    /// Plans one app, and records whether the passing of time can change it.
    fn plan(&mut self, vip: u32, turn: &mut Turn) {
        self.plan_bounded(vip, false, turn);
    }

    /// Plans one app. In its turn it may add a pod before others that wait.
    fn plan_bounded(&mut self, vip: u32, its_turn: bool, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        let held = record.held;
        record.bound(&mut self.bounds, its_turn);
        turn.actions
            .extend(plan::plan(record, turn.now, &mut self.names));
        record.bounded(&mut self.bounds);
        if held.is_none()
            && let Some(held) = record.held
        {
            self.metrics.held(held.by);
        }
        record.sleep_if_idle(turn.now);
        let counted = record.app.as_ref().map(|_| {
            (
                StateValue::from(plan::status(record).state),
                ModeValue::from(record.mode()),
            )
        });
        self.metrics.moved(record.counted, counted);
        record.counted = counted;
        if record.awake() {
            self.awake.insert(vip);
        } else {
            self.awake.remove(vip);
            self.wakes.over(vip);
            if record.app.is_none() && record.published.in_progress.is_none() {
                self.records.remove(&vip);
            }
            self.fold(vip);
        }
    }

    fn changes(&mut self, batch: Vec<(u64, Change)>, turn: &mut Turn) {
        let mut touched = BTreeSet::new();
        for (revision, change) in batch {
            match change {
                Change::Listing => self.listing = Some(Listing::default()),
                Change::Listed => self.listed(revision, turn),
                change => touched.extend(self.change(revision, change, turn)),
            }
        }
        if !self.is_listed {
            // An app's pods follow in the list.
            return;
        }
        self.listen(turn);
        for vip in touched {
            if let Some(record) = self.records.get_mut(&vip) {
                record.reconcile(turn.now);
            }
            self.plan(vip, turn);
        }
    }

    fn change(&mut self, revision: u64, change: Change, turn: &mut Turn) -> Option<u32> {
        self.revision = self.revision.max(revision);
        match change {
            Change::App(key, vip, app) => {
                let before = self.port_of(&key);
                let touched = self.app(&key, vip, &app, turn);
                self.ports.moved(before, self.port_of(&key));
                touched
            }
            Change::Deleted(key) => {
                let before = self.port_of(&key);
                let touched = self.app_gone(&key, revision, turn);
                self.ports.moved(before, None);
                touched
            }
            Change::Pod(change) => self.pod(change, turn),
            Change::Listing | Change::Listed => None,
        }
    }

    /// Sends the activators the ports of all apps, if they have changed.
    fn listen(&mut self, turn: &mut Turn) {
        let changed = self.ports.take_changed();
        turn.actions
            .extend(changed.map(|ports| Action::Listen { ports }));
    }

    /// A pod changed: its app is planned again.
    fn pod(&mut self, change: PodChange, turn: &mut Turn) -> Option<u32> {
        let vip = change.vip;
        if change.pod.is_none() {
            if let Some(reading) = self.reading.get_mut(&vip) {
                reading.pod_gone(&change.key);
            }
            self.records.get_mut(&vip)?.members.remove(&change.key);
            return Some(vip);
        }
        if !self.records.contains_key(&vip) {
            if self.sleep.get(vip).is_some() {
                self.read_for_pod(change, turn);
                return None;
            }
            self.orphan(vip, change.owner.clone(), turn.now);
        }
        self.member(change, turn.now);
        Some(vip)
    }

    /// A pod of an app that has a full record was created or changed.
    fn member(&mut self, change: PodChange, now: Boottime) {
        let record = self.records.get_mut(&change.vip);
        let Some((record, pod)) = record.zip(change.pod) else {
            return;
        };
        let (key, seen) = (change.key, pod::observe(&pod));
        let member = record.members.entry(key.clone()).or_insert_with(|| Member {
            // An earlier control may have published it.
            exposure: Exposure::Listed,
            ..Member::new(now, seen.template.clone())
        });
        let was_ready = member.ready_since.is_some();
        member.ready_since = seen.ready.and(member.ready_since.or(Some(now)));
        if !was_ready && member.ready_since.is_some() {
            tracing::info!(app = %record.key, pod = %key, "pod ready");
        }
        let node = seen.node.clone().unwrap_or_default();
        member.seen = Some(seen);
        // The scheduler may have chosen the node before it was lost.
        if change.on_lost_node && !member.failed {
            member.failed = true;
            let message = format!("node {node} has no fleet stream");
            let failure = Failure::new("NodeLost", message);
            record.backoff.failed(now, failure);
        }
    }

    /// A node's pods are lost: they are failed, so they are replaced and removed from the entries.
    fn pods_lost(&mut self, pods: Vec<(u32, Key)>, turn: &mut Turn) {
        let mut touched = BTreeSet::new();
        for (vip, pod) in pods {
            if let Some(reading) = self.reading.get_mut(&vip) {
                reading.pod_lost(&pod);
            } else if let Some(record) = self.records.get_mut(&vip) {
                if let Some(member) = record.members.get_mut(&pod) {
                    member.failed = true;
                }
                touched.insert(vip);
            }
        }
        for vip in touched {
            self.plan(vip, turn);
        }
    }

    /// A pod without an app: it is removed once no node uses it.
    fn orphan(&mut self, vip: u32, owner: Key, now: Boottime) {
        let mut record = AppRecord::new(vip, owner, now);
        record.begin(now);
        record.deleted_at = Some(self.revision);
        self.records.insert(vip, record);
    }
}
