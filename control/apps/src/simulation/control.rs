//! One control of the simulation: the real controller, fleet root and link root, driven as their loops drive them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dormouse_activator::link;
use dormouse_cluster::{Change, Key};
use dormouse_fleet::proto::NodeConfig;
use dormouse_fleet::{Boottime, ServerConfig};

use super::calls::{Calls, Replaced, Reply};
use super::fleet::Fleet;
use super::jobs::Job;
use super::store::Store;
use super::{LEASE, Without};
use crate::action::Action;
use crate::actuator::convert::route_of;
use crate::admission::Limits;
use crate::apps::{Apps, SLICE, SLICES};
use crate::config::Config;
use crate::controller::input_of;
use crate::dispatch::Dispatch;
use crate::event::{Event, Input, ShardEvent};
use crate::member::Member;
use crate::record::AppRecord;
use crate::shards::Shards;
use crate::shared::Shared;

/// Time after a start at which nodes that have not connected are lost.
const OVERDUE: Duration = Duration::from_secs(3);
/// Time in proxy mode before an app's last pod is removed.
const GRACE: Duration = Duration::from_millis(200);
/// The shards of a control.
const SHARDS: usize = 2;

pub(super) struct Control {
    pub(super) dispatch: Dispatch,
    shared: Arc<Shared>,
    /// The shards.
    apps: Vec<Apps>,
    pub(super) fleet: Fleet,
    pub(super) link: link::root::Root,
    pub(super) epoch: u64,
    /// It has learned that another control has taken the epoch, and ends.
    pub(super) replaced: bool,
    /// When it asks the store for its epoch again, and until when it waits for the response.
    confirm_due: Boottime,
    confirm_until: Option<Boottime>,
    listed_at: Boottime,
    /// Place in the store's log.
    cursor: usize,
    /// Delay of its watch of the store.
    pub(super) lag: Duration,
    /// What activators reported, and calls that have ended.
    inbox: VecDeque<Input>,
    slice: usize,
    slice_due: Boottime,
    overdue_at: Option<Boottime>,
    /// Pods whose creation had no response.
    unanswered: BTreeSet<Key>,
    without: Without,
    /// A rule that an event has violated.
    pub(super) violation: Option<String>,
}

/// What a control works with.
pub(super) struct Outside<'a> {
    pub(super) now: Boottime,
    pub(super) store: &'a mut Store,
    pub(super) calls: &'a mut Calls,
}

impl Control {
    /// Takes the next epoch. The list of the cluster is complete at `listed_at`.
    pub(super) fn start(
        store: &mut Store,
        now: Boottime,
        listed_at: Boottime,
        without: Without,
    ) -> Self {
        store.epoch += 1;
        let epoch = store.epoch;
        let config = Config {
            ranges: vec!["fd00:10::/108".parse().unwrap()],
            scale_to_zero_grace: GRACE,
            tick: Duration::from_secs(1),
            epoch,
            node_lease: LEASE,
            limits: Limits::default(),
        };
        let server = ServerConfig {
            lease: LEASE,
            epoch,
            node_config: NodeConfig::default(),
            boot_id: "control".into(),
            reserved: Vec::new(),
            own: Vec::new(),
        };
        let mut link = link::root::Root::new(epoch, "control".into());
        if without == Without::CompleteAfterRoutes {
            link.complete();
        }
        let shared = Arc::new(Shared::new(config, Shards::new(SHARDS), epoch));
        let new = |number| Apps::new(Arc::clone(&shared), number);
        Self {
            dispatch: Dispatch::new(shared.shards, shared.config.ranges.clone()),
            apps: (0..SHARDS).map(new).collect(),
            shared,
            fleet: Fleet::new(server, now, without),
            link,
            epoch,
            replaced: false,
            confirm_due: now,
            confirm_until: None,
            listed_at,
            cursor: 0,
            lag: Duration::ZERO,
            inbox: VecDeque::new(),
            slice: 0,
            slice_due: now,
            overdue_at: Some(now + OVERDUE),
            unanswered: BTreeSet::new(),
            without,
            violation: None,
        }
    }

    /// The apps that do not sleep.
    pub(super) fn records(&self) -> impl Iterator<Item = &AppRecord> {
        let shards = self.apps.iter();
        shards.flat_map(|shard| shard.records.values().map(AsRef::as_ref))
    }

    /// An app that does not sleep.
    pub(super) fn record(&self, vip: u32) -> Option<&AppRecord> {
        let shard = &self.apps[self.shared.shards.of(vip)];
        shard.records.get(&vip).map(AsRef::as_ref)
    }

    /// An activator's stream has brought events.
    pub(super) fn linked(&mut self, events: Vec<link::Event>) {
        self.inbox.extend(events.into_iter().filter_map(input_of));
    }

    pub(super) fn step(&mut self, outside: &mut Outside<'_>) {
        let now = outside.now;
        self.confirm(outside);
        if !self.dispatch.is_listed() {
            if now < self.listed_at.max(outside.calls.cut_until(self.epoch)) {
                if self.without == Without::ListFirst {
                    self.take_reports(outside);
                }
                return;
            }
            let (list, cursor) = outside.store.list();
            self.cursor = cursor;
            self.take(Input::Changes(list), outside);
            self.link.complete();
        }
        self.watch(outside);
        self.fleet.tick(now);
        self.take_reports(outside);
        let admitted = self.shared.admission.admit(now);
        self.admitted(admitted, outside);
        while self.slice_due <= now {
            self.slice_due = self.slice_due + SLICE;
            self.slice = (self.slice + 1) % SLICES;
            for shard in 0..SHARDS {
                if !self.apps[shard].is_idle() {
                    self.apply(shard, ShardEvent::Slice(self.slice), outside);
                }
            }
        }
        if self.overdue_at.take_if(|at| *at <= now).is_some() {
            self.take(Input::NodesOverdue, outside);
        }
    }

    fn take_reports(&mut self, outside: &mut Outside<'_>) {
        loop {
            let report = self.inbox.pop_front();
            let report = report.or_else(|| self.fleet.next_event().map(Input::Fleet));
            let Some(report) = report else { return };
            self.take(report, outside);
        }
    }

    /// Asks the store for the epoch, if that is due; a response that takes too long is not waited for.
    fn confirm(&mut self, outside: &mut Outside<'_>) {
        let now = outside.now;
        self.confirm_until.take_if(|until| *until <= now);
        if self.confirm_due <= now && self.confirm_until.is_none() {
            self.confirm_due = now + LEASE / 9;
            self.confirm_until = Some(now + LEASE / 3);
            outside.calls.make(self.epoch, now, Job::Confirm(now));
        }
    }

    fn watch(&mut self, outside: &mut Outside<'_>) {
        if outside.now < outside.calls.cut_until(self.epoch) {
            return;
        }
        let new = outside.store.log[self.cursor..].iter();
        let due = new.take_while(|written| written.at + self.lag <= outside.now);
        let mut batch: Vec<_> = due
            .map(|written| (written.revision, written.change.clone()))
            .collect();
        self.cursor += batch.len();
        if self.without == Without::AdoptedCreate {
            batch.retain(|(_, change)| {
                !matches!(change, Change::Pod(pod, _) if self.unanswered.contains(pod))
            });
        }
        if !batch.is_empty() {
            self.take(Input::Changes(batch), outside);
        }
    }

    pub(super) fn replied(&mut self, reply: Reply, outside: &mut Outside<'_>) {
        match reply.epoch_read {
            Some(Ok(at)) => {
                self.confirm_until = None;
                self.fleet.root().confirmed(at, outside.now);
            }
            Some(Err(Replaced)) => self.replaced = true,
            None => {}
        }
        if let Some((vip, version, entry)) = reply.entry {
            self.fleet.announce(vip, version, &entry, outside.now);
        }
        for input in reply.inputs {
            if let Input::App(Event::Created { pod, written, .. }) = &input
                && !written
            {
                self.unanswered.insert(pod.clone());
            }
            self.take(input, outside);
        }
    }

    fn take(&mut self, input: Input, outside: &mut Outside<'_>) {
        let dispatched = self.dispatch.apply(input);
        for action in dispatched.actions {
            self.execute(action, outside);
        }
        for (shard, event) in dispatched.events {
            self.apply(shard, event, outside);
        }
    }

    fn apply(&mut self, shard: usize, event: ShardEvent, outside: &mut Outside<'_>) {
        let before = self.members(shard);
        if self.without == Without::Successors {
            self.drain_earlier(shard);
        }
        let mut effects = self.apps[shard].apply(outside.now, event);
        self.check_successors(shard, &before);
        if effects.ports_moved
            && let Some(ports) = self.shared.ports.lock().take_changed()
        {
            self.link.ports(ports);
        }
        // Where a shard visits several apps, they are in no order.
        effects.actions.sort_by_key(vip_of);
        for action in effects.actions {
            self.execute(action, outside);
        }
        self.admitted(effects.admitted, outside);
    }

    /// The pods of the apps of a shard, by VIP.
    fn members(&self, shard: usize) -> BTreeMap<u32, BTreeMap<Key, Member>> {
        let records = self.apps[shard].records.iter();
        records
            .map(|(vip, record)| (*vip, record.members.clone()))
            .collect()
    }

    /// Pods of earlier templates leave at once.
    fn drain_earlier(&mut self, shard: usize) {
        for record in self.apps[shard].records.values_mut() {
            let template = &record.template;
            let earlier = record.members.values_mut();
            for member in earlier.filter(|member| member.template != *template) {
                member.draining = true;
            }
        }
    }

    fn check_successors(&mut self, shard: usize, before: &BTreeMap<u32, BTreeMap<Key, Member>>) {
        for (vip, before) in before {
            let record = self.apps[shard].records.get(vip);
            let checked = record.map_or(Ok(()), |record| record.check_successors(before));
            self.violation = self.violation.take().or(checked.err());
        }
    }

    /// It is the turn of apps of these shards.
    fn admitted(&mut self, shards: Vec<usize>, outside: &mut Outside<'_>) {
        for shard in shards {
            self.apply(shard, ShardEvent::Admission, outside);
        }
    }

    fn execute(&mut self, action: Action, outside: &mut Outside<'_>) {
        match action {
            Action::Announce {
                vip,
                version,
                entry,
            } => self.fleet.announce(vip, version, &entry, outside.now),
            Action::Absent { vip } => self.fleet.absent(vip, outside.now),
            Action::Withdraw { vip, version } => self.fleet.withdraw(vip, version, outside.now),
            Action::Route {
                vip,
                version,
                route,
            } => {
                // The streams are asked for their next messages in each step, and need not be woken.
                match route {
                    Some(route) => self.link.publish(vip, route_of(version, route)),
                    None => self.link.absent(vip),
                };
            }
            Action::Listen { ports } => {
                self.link.ports(ports);
            }
            Action::Run { node, spec } => {
                self.fleet.root().run(&node, spec);
            }
            Action::SyncPods { node, specs } => {
                self.fleet.root().sync_pods(&node, specs);
            }
            Action::Settle { vip, version } => self.fleet.settle(vip, version, outside.now),
            action => {
                if let Some(job) = Job::of(action) {
                    if self.without == Without::NodeWritesInOrder {
                        // As if the write had ended: the next one does not wait for it.
                        self.inbox.extend(job.node_written());
                    }
                    outside.calls.make(self.epoch, outside.now, job);
                }
            }
        }
    }
}

/// The VIP of an action; 0 for those of nodes and of all apps.
fn vip_of(action: &Action) -> u32 {
    match action {
        Action::Create { vip, .. }
        | Action::Read { vip, .. }
        | Action::ReadRevision { vip, .. }
        | Action::Publish { vip, .. }
        | Action::Announce { vip, .. }
        | Action::Absent { vip }
        | Action::Withdraw { vip, .. }
        | Action::Settle { vip, .. }
        | Action::Delete { vip, .. }
        | Action::Route { vip, .. } => *vip,
        _ => 0,
    }
}
