//! All apps and the handling of events. Pure: times, names and events in, actions out.

mod admit;
mod awake;
mod events;
mod listing;
mod nodes;
mod ports;
mod sleeping;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::{Change, Key, VipRange};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::PodStatus;
use k8s_openapi::api::core::v1::Pod;

use crate::action::{Action, Failure};
use crate::admission::{self, Limits};
use crate::event::Event;
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
    pods: BTreeMap<Key, Arc<Pod>>,
    on_node: BTreeMap<String, BTreeSet<Key>>,
    /// Nodes in the store, and whether they are ready there.
    nodes: BTreeMap<String, bool>,
    /// Nodes with an open stream.
    up: BTreeSet<String>,
    /// Nodes in the store that were lost and have not reconnected.
    lost: BTreeSet<String>,
    awake: Awake,
    /// Status writes in progress, each with the newest one that waits for it.
    writes: HashMap<Key, Option<(String, PodStatus)>>,
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
            pods: BTreeMap::new(),
            on_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            up: BTreeSet::new(),
            lost: BTreeSet::new(),
            awake: Awake::default(),
            writes: HashMap::new(),
            ports: Ports::default(),
            names: Names::new(seed),
            seconds: 0,
            revision: 0,
        }
    }

    /// Whether the first list of the cluster is complete. Before it is, only changes may be applied.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Whether the passing of time changes nothing.
    pub fn is_idle(&self) -> bool {
        self.awake.is_empty() && self.reading.is_empty()
    }

    /// Handles one event and returns the actions.
    pub fn apply(&mut self, now: Boottime, event: Event) -> Vec<Action> {
        let mut turn = Turn::new(now);
        match event {
            Event::Changes(batch) => self.changes(batch, &mut turn),
            Event::Demand { vip, at } => self.demand(vip, at, &mut turn),
            Event::Want { vip, port, at } => self.want((vip, port), at, &mut turn),
            Event::Fleet(event) => self.fleet(event, &mut turn),
            Event::Slice { slice, loads } => self.slice(slice, &loads, &mut turn),
            Event::FirstByte { vip, at } => self.first_byte(vip, at),
            Event::Placed { vip, pod, node, at } => {
                if let Some(node) = node {
                    self.wakes.placed(vip, &pod.name, &node, at);
                }
            }
            Event::Created { vip, pod, written } => {
                self.created(vip, &pod, written, &mut turn);
            }
            Event::Published { vip, version } => self.published(vip, version, &mut turn),
            Event::Settled { vip, version } => self.settled(vip, version, &mut turn),
            Event::Deleted { vip, pod, gone } => self.deleted(vip, &pod, gone),
            Event::StatusWritten { pod } => self.status_written(&pod, &mut turn),
            Event::Admission => {}
            Event::NodesOverdue => self.nodes_overdue(&mut turn),
            Event::AppRead { vip, read } => self.app_read(vip, read, &mut turn),
        }
        self.admit(&mut turn);
        self.take_turns(&mut turn);
        turn.actions
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
            Change::App(key, app) => {
                let before = self.port_of(&key);
                let touched = match app {
                    Some(app) => self.app(&key, &app, turn),
                    None => self.app_gone(&key, revision, turn),
                };
                self.ports.moved(before, self.port_of(&key));
                touched
            }
            Change::Pod(key, pod) => self.pod(&key, pod, turn),
            Change::Node(key, node) => {
                if let Some(node) = node {
                    self.nodes.insert(key.name, crate::nodes::is_ready(&node));
                } else {
                    self.nodes.remove(&key.name);
                    self.lost.remove(&key.name);
                }
                None
            }
            Change::Listing | Change::Listed => None,
        }
    }

    /// Sends the activators the ports of all apps, if they have changed.
    fn listen(&mut self, turn: &mut Turn) {
        let changed = self.ports.take_changed();
        turn.actions
            .extend(changed.map(|ports| Action::Listen { ports }));
    }

    /// A pod changed: the change is sent to its node, and its app is planned again.
    fn pod(&mut self, key: &Key, pod: Option<Arc<Pod>>, turn: &mut Turn) -> Option<u32> {
        let before = match &pod {
            Some(pod) => self.pods.insert(key.clone(), Arc::clone(pod)),
            None => self.pods.remove(key),
        };
        self.send_pod_changes(key, before.as_deref(), pod.as_deref(), turn);
        let (owner, vip) = pod::owner_of(pod.as_deref().or(before.as_deref())?)?;
        let Some(pod) = pod else {
            if let Some(reading) = self.reading.get_mut(&vip) {
                reading.pod_gone(key);
            }
            self.records.get_mut(&vip)?.members.remove(key);
            return Some(vip);
        };
        if !self.records.contains_key(&vip) {
            if self.sleep.get(vip).is_some() {
                self.read_for_pod(vip, key, turn);
                return None;
            }
            self.orphan(vip, owner, turn.now);
        }
        self.member(vip, key, &pod, turn.now);
        Some(vip)
    }

    /// A pod of an app that has a full record was created or changed.
    fn member(&mut self, vip: u32, key: &Key, pod: &Pod, now: Boottime) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        let seen = pod::observe(pod);
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
        let lost = seen.node.clone().filter(|node| self.lost.contains(node));
        member.seen = Some(seen);
        // The scheduler may have chosen the node before it was lost.
        if let Some(node) = lost.filter(|_| !member.failed) {
            member.failed = true;
            let message = format!("node {node} has no fleet stream");
            let failure = Failure::new("NodeLost", message);
            record.backoff.failed(now, failure);
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
