//! The engine: a cluster, an index over it, and decisions by the index where it holds all that they need.

mod classes;
mod fast;
mod known;
mod run;

use std::sync::Arc;

use dormouse_scheduler_decide::facts::Weights;
use dormouse_scheduler_decide::{
    Attempt, Interner, Node, NodeEvent, Outcome, Pod, PodKey, Profile, Requests, Scheduler,
    Snapshot, Vetoes, gate,
};
use fastrand::Rng;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use k8s_openapi::jiff::Timestamp;

use crate::class::Class;
use crate::decision::Decision;
use crate::failures::Failures;
use crate::index::Index;
use crate::ledger::Ledger;
use crate::number::wide;
use fast::Found;
use run::Runs;

/// The least number of nodes of a segment, unless an attempt looks at fewer.
const SEGMENT_LEN: usize = if cfg!(test) { 32 } else { 4_096 };
/// Segments that are as long as the part of the order that an attempt looks at. Each is a tree to descend, far from the others in
/// memory; where an attempt begins or ends within one, its nodes are looked at one by one if some are not feasible.
const SEGMENTS_MAX: usize = 4;

/// Pods of a list for which memory is read at once.
const PODS_AHEAD: usize = 16;

/// What an attempt chose.
enum Choice {
    /// The node of a slot.
    Slot(u32),
    Decision(Box<Decision>),
}

impl From<Decision> for Choice {
    fn from(decision: Decision) -> Self {
        Self::Decision(Box::new(decision))
    }
}

/// Decides for the pods of some profiles.
///
/// The cluster is the truth. The index follows its changes before each decision, at a cost of what changed.
#[derive(Clone, Debug)]
pub struct Engine {
    cluster: Snapshot,
    events: Vec<NodeEvent>,
    index: Index,
    profiles: Vec<(Scheduler, Option<Weights>)>,
    classes: HashMap<(u32, usize), Class, FixedState>,
    /// Kinds are those of this revision in all classes.
    kinds_revision: u64,
    failures: Failures,
    ledger: Ledger,
    requests: Interner<Requests>,
    rng: Rng,
    runs: Runs,
    looked_at: u64,
}

impl Engine {
    /// An engine for an empty cluster, which draws from a sequence that `seed` begins.
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Self {
        let profiles = profiles.into_iter().map(|profile| {
            let weights = profile.weights();
            (Scheduler::new(profile), weights)
        });
        Self {
            cluster: Snapshot::default(),
            events: Vec::new(),
            index: Index::new(),
            profiles: profiles.collect(),
            classes: HashMap::default(),
            kinds_revision: 0,
            failures: Failures::default(),
            ledger: Ledger::default(),
            requests: Interner::default(),
            rng: Rng::with_seed(seed),
            runs: Runs::default(),
            looked_at: 0,
        }
    }

    /// The cluster, to be changed. The index follows.
    pub fn cluster(&mut self) -> &mut Snapshot {
        &mut self.cluster
    }

    /// The cluster, as of the last decision where it was changed since.
    pub fn snapshot(&self) -> &Snapshot {
        &self.cluster
    }

    /// Adds a node, or replaces it.
    pub fn set_node(&mut self, node: Node) {
        self.cluster.set_node(node);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
    }

    /// Adds a pod, or replaces it: bound, or nominated.
    pub fn set_pod(&mut self, mut pod: Pod) {
        self.share(&mut pod);
        self.cluster.set_pod(pod);
    }

    /// Removes a pod and its nomination.
    pub fn remove_pod(&mut self, key: &PodKey) {
        self.cluster.remove_pod(key);
    }

    /// Removes a pod's nomination.
    pub fn remove_nomination(&mut self, key: &PodKey) {
        self.cluster.remove_nomination(key);
    }

    /// Lets the pod share memory with equal ones.
    pub fn share(&mut self, pod: &mut Pod) {
        let rules = self.index.counters.rules(pod);
        let shared = self.index.counters.shared(rules);
        let shared = shared.unwrap_or(pod.rules());
        let has_shared_requests = Arc::strong_count(pod.requests()) > 1;
        if has_shared_requests && Arc::ptr_eq(shared, pod.rules()) {
            return;
        }
        let rules = shared.clone();
        let requests = if has_shared_requests {
            pod.requests().clone()
        } else {
            self.requests.intern(pod.requests())
        };
        pod.share(&rules, &requests);
    }

    /// The number of nodes, or of groups of equal nodes, that decisions have looked at so far.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Decides for a pod. The cluster does not change: the caller binds the pod, or evicts victims.
    pub fn decide(&mut self, scheduler_name: &str, pod: &Pod) -> Decision {
        let slot = match self.choose(scheduler_name, pod) {
            Choice::Slot(slot) => slot,
            Choice::Decision(decision) => return *decision,
        };
        let node = self.cluster.view(slot);
        let node = node.map(|node| node.name().clone()).unwrap_or_default();
        Decision::Placed { node }
    }

    fn choose(&mut self, scheduler_name: &str, pod: &Pod) -> Choice {
        self.follow();
        let Some(profile) = self.profile(scheduler_name) else {
            let error = format!("no profile is named {scheduler_name:?}");
            return Decision::Error(error).into();
        };
        if let Some(status) = gate(self.profiles[profile].0.profile(), pod) {
            return Decision::Gated(status).into();
        }
        let amounts = pod.requests().amounts();
        let Some(request) = amounts.filter(|_| pod.node_name().is_empty()) else {
            return self.attempt(profile, pod).into();
        };
        let rules = self.index.counters.rules(pod);
        let key = (profile, rules, request);
        if let Some(choice) = self.known(key, pod) {
            return choice;
        }
        if let Some(slot) = self.find_again(&key) {
            return Choice::Slot(slot);
        }
        match self.find(key, pod) {
            Found::Node(slot) => {
                self.begin_run(key);
                Choice::Slot(slot)
            }
            Found::Nothing { is_special } => self.fail(key, pod, is_special).into(),
        }
    }

    /// Decides for a pod, and puts it on the node if there is one.
    pub fn place(
        &mut self,
        scheduler_name: &str,
        mut pod: Pod,
        start_time: Option<Timestamp>,
    ) -> Decision {
        self.share(&mut pod);
        match self.choose(scheduler_name, &pod) {
            Choice::Slot(slot) => {
                let node = self.bind(slot, pod, start_time);
                Decision::Placed { node }
            }
            Choice::Decision(decision) => {
                if let Decision::Placed { node } = &*decision {
                    self.cluster.set_pod(pod.bound(node.clone(), start_time));
                }
                *decision
            }
        }
    }

    /// Puts a pod on the node of a slot; the name of the node.
    fn bind(&mut self, slot: u32, mut pod: Pod, start_time: Option<Timestamp>) -> Arc<str> {
        let Some(node) = self.cluster.view(slot) else {
            return Arc::default();
        };
        let name = node.name().clone();
        pod.bind(name.clone(), start_time);
        if node.has_images() || self.cluster.has_pod(pod.key()) {
            self.cluster.set_pod(pod);
            return name;
        }
        self.cluster.add_pod(slot, pod);
        let node = self.cluster.view(slot);
        if let Some(pod) = node.and_then(|node| node.pods().last()) {
            // Nothing but the columns and what is known of classes has to follow.
            let event = NodeEvent::Added(slot, &**pod);
            self.index.follow(&self.cluster, &event);
            self.failures.follow(&event);
            self.ledger.follow(&event, self.cluster.slots_len());
        }
        name
    }

    /// Places pods one after the other, as [`Engine::place`] does, and passes each decision to `tell` before it places the next.
    pub fn place_all(
        &mut self,
        scheduler_name: &str,
        pods: impl IntoIterator<Item = Pod>,
        mut tell: impl FnMut(Decision),
    ) {
        let (mut pods, mut next) = (pods.into_iter(), Vec::new());
        loop {
            next.extend(pods.by_ref().take(PODS_AHEAD));
            if next.is_empty() {
                return;
            }
            self.cluster.read_ahead_of(&next);
            for pod in next.drain(..) {
                tell(self.place(scheduler_name, pod, None));
            }
        }
    }

    /// All that an attempt finds, in the time that it takes to look at each node. Nothing changes.
    pub fn explain(&mut self, scheduler_name: &str, pod: &Pod) -> Option<Attempt> {
        self.follow();
        let profile = self.profile(scheduler_name)?;
        let mut scheduler = self.profiles[profile].0.clone();
        Some(scheduler.attempt(&self.cluster, pod))
    }

    /// The same with verdicts of extenders.
    pub fn attempt_with(
        &mut self,
        scheduler_name: &str,
        pod: &Pod,
        vetoes: Arc<Vetoes>,
    ) -> Option<Attempt> {
        self.follow();
        let (scheduler, _) = &self.profiles[self.profile(scheduler_name)?];
        Some(scheduler.attempt_with(&self.cluster, pod, vetoes))
    }

    fn profile(&self, name: &str) -> Option<usize> {
        let mut all = self.profiles.iter();
        all.position(|(scheduler, _)| scheduler.profile().name() == name)
    }

    /// Lets the index follow the cluster.
    pub(crate) fn follow(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let is_order_new = self.cluster.refresh_into(&mut events);
        for event in &events {
            self.index.follow(&self.cluster, event);
            self.failures.follow(event);
            if let NodeEvent::Node(_) = event {
                self.runs.end();
            }
            self.ledger.follow(event, self.cluster.slots_len());
        }
        events.clear();
        self.events = events;
        if is_order_new {
            let segment_len = self.segment_len();
            self.index.divide(&self.cluster, segment_len);
            self.ledger.reorder();
        }
        self.index.read_terms(&self.cluster);
        self.forget_gone();
        self.forget_kinds();
    }

    fn forget_kinds(&mut self) {
        if self.kinds_revision != self.index.kinds_revision {
            self.kinds_revision = self.index.kinds_revision;
            self.classes.values_mut().for_each(Class::forget_kinds);
        }
    }

    /// The length of segments; `None` if all profiles look at all nodes. A few of them are as long as the part of the order
    /// that an attempt looks at where all nodes are feasible.
    fn segment_len(&self) -> Option<usize> {
        let nodes_len = self.cluster.nodes_len();
        let limits = self.profiles.iter();
        let limits = limits.map(|(scheduler, _)| scheduler.limit(nodes_len));
        let smallest = limits.min().filter(|limit| *limit < nodes_len)?;
        Some(smallest.max(1) / (smallest / SEGMENT_LEN).clamp(1, SEGMENTS_MAX))
    }

    /// Draws the first node on which preemption is tried.
    fn draw_offset(&mut self, profile: usize) {
        let offset = self.rng.usize(0..self.cluster.nodes_len().max(1));
        self.profiles[profile].0.set_preemption_offset(offset);
    }

    /// Decides with a look at each node.
    fn attempt(&mut self, profile: usize, pod: &Pod) -> Decision {
        self.looked_at += wide(self.cluster.nodes_len());
        let random = self.rng.u64(..);
        self.draw_offset(profile);
        let attempt = self.profiles[profile].0.attempt(&self.cluster, pod);
        if attempt.outcome != Outcome::Placed {
            return Decision::of(attempt);
        }
        match attempt.draw(random) {
            Some(node) => Decision::Placed { node: node.into() },
            None => Decision::of(attempt),
        }
    }
}

#[cfg(test)]
mod tests;
