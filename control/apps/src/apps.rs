//! The apps of one shard and the handling of events. Pure: times, names and events in, actions out.

mod admit;
mod awake;
mod events;
mod listing;
mod load;
mod sleeping;
mod stored;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::Key;
use dormouse_fleet::Boottime;

use crate::action::Failure;
use crate::event::{Change, Event, PodChange, ShardEvent};
use crate::member::{Exposure, Member};
use crate::metrics::{ModeValue, StateValue};
use crate::plan;
use crate::pod;
use crate::record::AppRecord;
use crate::shared::Shared;
use crate::sleep::Sleep;
use crate::slept::Slept;
use crate::wake::Wakes;
use awake::Awake;
pub(crate) use awake::slice_of;
pub use awake::{SLICE, SLICES};
use listing::Listing;
use load::Loads;
use sleeping::Reading;
pub use turn::Effects;
use turn::Turn;

/// Wait before a failed write is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The apps of one shard.
pub struct Apps {
    pub(crate) shared: Arc<Shared>,
    shard: usize,
    /// The apps that do not sleep, and those whose state is being published.
    pub(crate) records: BTreeMap<u32, Box<AppRecord>>,
    /// All others.
    pub(crate) sleep: Sleep,
    /// The sleeping apps that are being read from the store.
    reading: HashMap<u32, Reading>,
    /// The list of the cluster in progress.
    listing: Option<Listing>,
    is_listed: bool,
    pub(crate) wakes: Wakes,
    pub(crate) slept: Slept,
    /// The VIP index of each app in `records` that exists.
    index: HashMap<Key, u32>,
    awake: Awake,
    loads: Loads,
    seconds: u64,
    revision: u64,
}

impl Apps {
    /// A shard without apps: a list of the cluster is expected first.
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self {
            shard: number,
            records: BTreeMap::new(),
            sleep: Sleep::default(),
            reading: HashMap::new(),
            listing: None,
            is_listed: false,
            wakes: Wakes::new(shared.shards.count()),
            slept: Slept::new(shared.shards.count()),
            shared,
            index: HashMap::new(),
            awake: Awake::default(),
            loads: Loads::default(),
            seconds: 0,
            revision: 0,
        }
    }

    /// Whether the passing of time changes nothing.
    pub fn is_idle(&self) -> bool {
        self.awake.is_empty() && self.reading.is_empty() && self.loads.is_empty()
    }

    /// Handles one event.
    pub fn apply(&mut self, now: Boottime, event: ShardEvent) -> Effects {
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
        turn.effects()
    }

    fn event(&mut self, event: Event, turn: &mut Turn) {
        match event {
            Event::Demand { vip, at } => self.demand(vip, at, turn),
            Event::Start { vip } => self.start_sleeping(vip, turn),
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
            Event::Unanswered { vip, at, how } => self.unanswered(vip, at, how),
            Event::Answer {
                vip,
                pod,
                at,
                fault,
            } => self.answer((vip, pod), at, fault, turn),
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
            Event::Published { vip, app } => self.published(vip, app, turn),
            Event::Settled { vip, version } => self.settled(vip, version, turn),
            Event::Deleted { vip, pod, gone } => self.deleted(vip, &pod, gone),
            Event::AppRead { vip, read } => self.app_read(vip, read, turn),
            Event::RevisionRead { vip, read } => self.revision_read(vip, read, turn),
        }
    }

    /// Plans one app, and records whether the passing of time can change it.
    fn plan(&mut self, vip: u32, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        self.shared.metrics.decided(record);
        let held = record.held;
        let actions = plan::plan(record, turn.now, &self.shared);
        turn.actions.extend(actions);
        if held.is_none()
            && let Some(held) = record.held
        {
            self.shared.metrics.held(held.by);
        }
        let failed = record.backoff.last.as_ref().map(Failure::brief);
        if record.sleep_if_idle(turn.now) {
            self.slept.add(vip, crate::explain::last(record));
        }
        let counted = record.app.as_ref().map(|_| {
            (
                StateValue::from(plan::state(record).0),
                ModeValue::from(record.mode()),
            )
        });
        self.shared.metrics.moved(record.counted, counted);
        record.counted = counted;
        if record.awake() {
            self.awake.insert(vip);
        } else {
            self.awake.remove(vip);
            self.shared
                .metrics
                .wake_over(self.wakes.over(vip, turn.now, failed));
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
            Change::App(key, vip, app) if self.is_known(&key, vip, &app) => None,
            Change::App(key, vip, app) => {
                let before = self.port_of(&key);
                let touched = self.app(&key, vip, app, turn);
                self.port_moved(before, self.port_of(&key), turn);
                touched
            }
            Change::Deleted(key) => {
                let before = self.port_of(&key);
                let touched = self.app_gone(&key, revision, turn);
                self.port_moved(before, None, turn);
                touched
            }
            Change::Pod(change) => self.pod(change, turn),
            Change::Listing | Change::Listed => None,
        }
    }

    /// An app's port has changed; none: there is no such app.
    fn port_moved(&self, before: Option<u16>, after: Option<u16>, turn: &mut Turn) {
        if before != after {
            self.shared.ports.lock().moved(before, after);
            turn.ports_moved = true;
        }
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
        let is_gone = record.app.is_none();
        let owner = record.app.as_ref().map(|app| app.metadata.uid.as_deref());
        let template = pod::template_of(&seen, record.app.as_deref());
        let member = record.members.entry(key.clone()).or_insert_with(|| {
            if is_gone {
                // A version without the pod must follow, also after the app's withdrawal.
                record.deleted_at = Some(self.revision);
            }
            // An earlier control may have published it. The newest entry of this one does not have it.
            let published = record.published.entry.as_ref();
            Member {
                exposure: published.map_or(Exposure::Listed, |_| {
                    Exposure::Unlisted(record.published.version)
                }),
                ..Member::new(now, template)
            }
        });
        let was_ready = member.ready_since.is_some();
        member.ready_since = seen.ready.and(member.ready_since.or(Some(now)));
        if !was_ready && member.ready_since.is_some() {
            tracing::debug!(app = %record.key, pod = %key, "pod ready");
        }
        let node = seen.node.clone().unwrap_or_default();
        let is_bound = !node.is_empty() && member.node().is_none();
        member.seen = Some(seen);
        member.draining |= owner.is_some_and(|uid| !member.is_owned(uid));
        if is_bound {
            self.wakes.placed(change.vip, &key.name, &node, now);
        }
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
        self.records.insert(vip, Box::new(record));
    }
}
