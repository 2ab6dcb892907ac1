//! Slow calls of controls, each executed later by the store. A call outlives the control that made it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_cluster::{Key, Object};
use dormouse_fleet::Boottime;
use dormouse_fleet_simulation::Random;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;

use super::jobs::Job;
use super::store::Store;
use super::{TICK, Without, log};
use crate::action::Entry;
use crate::actuator::convert::app_status;
use crate::event::{AppRead, Event, Input, RevisionRead};
use crate::nodes;
use crate::pod;

/// One call in so many has no response, whether it was executed or not.
const LOST: u64 = 30;

struct Call {
    epoch: u64,
    at: Boottime,
    lost: bool,
    job: Job,
}

/// The result of a call.
pub(super) struct Reply {
    pub(super) epoch: u64,
    at: Boottime,
    pub(super) inputs: Vec<Input>,
    /// An entry to publish.
    pub(super) entry: Option<(u32, u64, Entry)>,
    /// Since when the epoch is confirmed, or that another control has taken it.
    pub(super) epoch_read: Option<Result<Boottime, Replaced>>,
}

/// Another control has taken the epoch.
pub(super) struct Replaced;

pub(super) struct Calls {
    pending: Vec<Call>,
    replies: Vec<Reply>,
    random: Random,
    /// Until when the network between a control and the store is cut, by epoch.
    cuts: BTreeMap<u64, Boottime>,
    /// All calls are executed, and answered within 100 ms.
    pub(super) calm: bool,
    without: Without,
    /// Calls of controls that had lost the epoch.
    pub(super) refused: usize,
    /// The number of pods that were created, by VIP.
    pub(super) creates: BTreeMap<u32, usize>,
}

impl Calls {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        Self {
            pending: Vec::new(),
            replies: Vec::new(),
            random: Random::new(seed.wrapping_add(2 << 40)),
            cuts: BTreeMap::new(),
            calm: false,
            without,
            refused: 0,
            creates: BTreeMap::new(),
        }
    }

    pub(super) fn make(&mut self, epoch: u64, now: Boottime, job: Job) {
        let slow = !self.calm && self.random.once_in(15);
        let wait = self.random.period(if slow { 1_500 } else { 50 });
        let lost = !self.calm && self.random.once_in(LOST);
        if let Job::Create { vip, .. } = &job {
            *self.creates.entry(*vip).or_default() += 1;
        }
        self.pending.push(Call {
            epoch,
            at: (now + wait).max(self.cut_until(epoch)),
            lost,
            job,
        });
    }

    /// Cuts the network between a control and the store. What is on its way arrives later.
    pub(super) fn cut(&mut self, epoch: u64, until: Boottime) {
        self.cuts.insert(epoch, until);
        let calls = self.pending.iter_mut();
        for call in calls.filter(|call| call.epoch == epoch) {
            call.at = call.at.max(until);
        }
        let replies = self.replies.iter_mut();
        for reply in replies.filter(|reply| reply.epoch == epoch) {
            reply.at = reply.at.max(until);
        }
    }

    pub(super) fn cut_until(&self, epoch: u64) -> Boottime {
        self.cuts.get(&epoch).copied().unwrap_or_default()
    }

    /// A control is killed: half of its calls have been sent and are executed.
    pub(super) fn killed(&mut self, epoch: u64) {
        let random = &mut self.random;
        self.pending
            .retain(|call| call.epoch != epoch || random.once_in(2));
    }

    /// Whether there is nothing but confirmations of the epoch.
    pub(super) fn is_idle(&self) -> bool {
        let mut pending = self.pending.iter();
        pending.all(|call| matches!(call.job, Job::Confirm(_)))
            && self.replies.iter().all(|reply| reply.epoch_read.is_some())
    }

    /// Executes the calls that are due; returns the results that are.
    pub(super) fn step(&mut self, now: Boottime, store: &mut Store) -> Vec<Reply> {
        let all = std::mem::take(&mut self.pending);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|call| call.at <= now);
        self.pending = later;
        for call in due {
            let reply = self.execute(call, now, store);
            self.replies.push(reply);
        }
        let all = std::mem::take(&mut self.replies);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|reply| reply.at <= now);
        self.replies = later;
        due
    }

    fn execute(&mut self, call: Call, now: Boottime, store: &mut Store) -> Reply {
        let current = store.epoch == call.epoch;
        log(now, || {
            let refused = if current { "" } else { ", refused" };
            let lost = if call.lost {
                ", without a response"
            } else {
                ""
            };
            format!("control {}: {}{refused}{lost}", call.epoch, call.job)
        });
        let fenced = self.without != Without::Fence || matches!(call.job, Job::Confirm(_));
        if current || !fenced {
            return self.write(call, now, store);
        }
        let mut reply = self.reply(call.epoch, now);
        match call.job.refused() {
            Some(refused) => {
                self.refused += 1;
                reply.inputs.push(refused);
            }
            None => reply.epoch_read = Some(Err(Replaced)),
        }
        reply
    }

    fn reply(&mut self, epoch: u64, now: Boottime) -> Reply {
        Reply {
            epoch,
            at: (now + self.random.period(50) + TICK).max(self.cut_until(epoch)),
            inputs: Vec::new(),
            entry: None,
            epoch_read: None,
        }
    }

    fn write(&mut self, call: Call, now: Boottime, store: &mut Store) -> Reply {
        let mut reply = self.reply(call.epoch, now);
        let Call { lost, job, .. } = call;
        match job {
            Job::Read { vip, app } => {
                let read = match store.apps.get(&app) {
                    _ if lost => AppRead::Failed,
                    Some(app) => AppRead::Found(Arc::new(app.clone())),
                    None => AppRead::Absent,
                };
                reply.inputs.push(Event::AppRead { vip, read }.into());
            }
            Job::ReadRevision { vip, revision } => {
                let read = match store.revisions.get(&revision) {
                    _ if lost => RevisionRead::Failed,
                    Some(found) => RevisionRead::Found(Box::new(found.clone())),
                    None => RevisionRead::Absent,
                };
                reply.inputs.push(Event::RevisionRead { vip, read }.into());
            }
            Job::Create { vip, pod } => self.create(vip, *pod, lost, now, store, &mut reply),
            Job::Publish {
                vip,
                app,
                status,
                entry,
            } => {
                let version = store.write_status(now, &app.key(), |app| {
                    app.status = Some(app_status(app, &status));
                });
                let version = version.filter(|_| !lost);
                reply.entry = version
                    .zip(entry)
                    .map(|(version, entry)| (vip, version, entry));
                let app = store.apps.get(&app.key()).filter(|_| version.is_some());
                let app = app.cloned().map(Arc::new);
                reply.inputs.push(Event::Published { vip, app }.into());
            }
            Job::Delete { vip, pod } => {
                store.delete_pod(now, &pod);
                let gone = !lost;
                reply.inputs.push(Event::Deleted { vip, pod, gone }.into());
            }
            Job::PodStatus { pod, status } => {
                store.change_pod(now, &pod, |pod| {
                    pod::write_status(pod, &status, Timestamp::UNIX_EPOCH)
                });
                reply.inputs.push(Input::StatusWritten { pod });
            }
            Job::NodeUp(node) => {
                let change = |object: &mut Node| nodes::up(object, &node, Timestamp::UNIX_EPOCH);
                store.change_node(now, &node.name, change);
                reply.inputs.push(Input::NodeWritten { node: node.name });
            }
            Job::NodeDown(name) => {
                let change = |object: &mut Node| nodes::down(object, Timestamp::UNIX_EPOCH);
                if store.nodes.contains_key(&Key::cluster_scoped(&name)) {
                    store.change_node(now, &name, change);
                }
                reply.inputs.push(Input::NodeWritten { node: name });
            }
            Job::Confirm(at) => reply.epoch_read = (!lost).then_some(Ok(at)),
        }
        reply
    }

    fn create(
        &mut self,
        vip: u32,
        mut pod: Pod,
        lost: bool,
        now: Boottime,
        store: &mut Store,
        reply: &mut Reply,
    ) {
        let key = pod.key();
        if let Some(node) = self.place(store) {
            pod.spec.get_or_insert_default().node_name = Some(node.clone());
            let placed = Event::Placed {
                vip,
                pod: key.clone(),
                node: Some(node),
                at: now,
            };
            reply.inputs.push(placed.into());
        }
        // Without a response, the pod may be written or not.
        let written = if lost && self.random.once_in(2) {
            false
        } else {
            store.create_pod(now, pod)
        };
        let created = Event::Created {
            vip,
            pod: key,
            written: written && !lost,
        };
        reply.inputs.push(created.into());
    }

    /// The scheduler's node for a pod.
    fn place(&mut self, store: &Store) -> Option<String> {
        let ready: Vec<_> = store.nodes.iter().collect();
        let ready: Vec<_> = ready
            .into_iter()
            .filter(|(_, node)| nodes::is_ready(node))
            .map(|(key, _)| &key.name)
            .collect();
        (!ready.is_empty()).then(|| ready[self.random.index(ready.len())].clone())
    }

    /// The scheduler binds the pods that have no node.
    pub(super) fn schedule(&mut self, now: Boottime, store: &mut Store) {
        let unbound = |pod: &Pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_none())
        };
        let pods = store.pods.iter().filter(|(_, pod)| unbound(pod));
        let pods: Vec<Key> = pods.map(|(key, _)| key.clone()).collect();
        for key in pods {
            if let Some(node) = self.place(store) {
                store.change_pod(now, &key, |pod| {
                    pod.spec.get_or_insert_default().node_name = Some(node);
                    true
                });
            }
        }
    }
}
