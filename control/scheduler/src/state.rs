//! The scheduler's state: the cluster, the queue, assumed pods and bindings. Pure: time is an argument, and what is to be
//! written comes out as [`Work`].
//!
//! Reading order: changes of pods ([`pods`]) and nodes ([`nodes`]), the cycle of one pod ([`cycle`]) with the part that decides
//! ([`decider`]), at once or later ([`deciding`]), its end ([`outcome`]), direct placements ([`place`]), announced pods
//! ([`announced`]), explanations ([`explain`]).

mod announced;
mod consult;
mod cycle;
mod decider;
mod deciding;
mod explain;
mod judge;
mod nodes;
mod outcome;
mod place;
mod pods;
mod related;
mod reports;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use dormouse_cluster::{Change, Key};
use dormouse_scheduler_columns::Engine;
use dormouse_scheduler_decide::queue::VolumeKind;
use dormouse_scheduler_decide::{Extender, Node, Pod, PodKey, Profile};
use fastrand::Rng;
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::map::Map;
use crate::queue::{Happened, Lengths, Moves, Popped, Queue};
use crate::shards::Lead;
use announced::Announced;
pub use announced::{ANNOUNCED_MAX, ANNOUNCED_TTL};
pub use consult::{Asked, Consultation, Replies};
pub use cycle::{Attempt, Eviction, Reason, Rejection, Step, Verdict, Victim, Work};
use decider::Decider;
use deciding::Deciding;
pub(crate) use deciding::inexact;
pub use explain::{Explanation, Topic};
use judge::Profiles;
pub use outcome::Outcome;
use reports::Reports;

/// Time after which a pod expires that was placed directly, and was not seen in the store.
pub const ASSUMED_TTL: SignedDuration = SignedDuration::from_secs(10);

/// A pod of the cluster.
#[derive(Debug)]
struct Known {
    /// With the nomination in force.
    pod: Arc<Pod>,
    uid: String,
    revision: u64,
}

/// A pod that counts on a node before it is seen there.
#[derive(Debug)]
struct Assumed {
    /// As it will be.
    pod: Arc<Pod>,
    /// When it expires; `None` while its binding is being written, and afterwards until it is seen.
    expires: Option<Timestamp>,
}

/// The cluster as the scheduler knows it, and what it is about to do.
pub struct State {
    decider: Decider,
    /// Attempts whose decision comes later.
    deciding: Map<PodKey, Deciding>,
    /// Direct placements whose decision came later.
    placed: Vec<(PodKey, Result<String, String>)>,
    profiles: Profiles,
    queue: Queue,
    pods: Map<PodKey, Known>,
    /// The last pod without a node that was parsed, with its object: pods of one template often come in a row.
    last: Option<(Arc<ApiPod>, Pod)>,
    /// The objects of pods of these schedulers that have no node.
    pending: Map<PodKey, Arc<ApiPod>>,
    nodes: Map<String, Arc<Node>>,
    extenders: Vec<Extender>,
    /// The objects of nodes, if an extender wants them.
    objects: Map<String, Arc<ApiNode>>,
    /// For the choice among nodes that extenders have scored.
    rng: Rng,
    assumed: Map<PodKey, Assumed>,
    /// When pods that were placed directly expire, in this order.
    expiring: VecDeque<(Timestamp, PodKey)>,
    /// Pods that are announced, and not seen yet.
    announced: Map<PodKey, Announced>,
    /// When these are dropped, in this order; and pods that were seen since.
    unseen: VecDeque<(Timestamp, PodKey)>,
    /// The kinds and names of the objects by which volumes are bound and attached.
    volumes: HashSet<(VolumeKind, Key)>,
    /// Pods whose binding is being written.
    binding: Map<PodKey, Popped>,
    /// Pods whose last decision was made without so many shards.
    inexact: Map<PodKey, usize>,
    /// Reports about pods that do not enter the queue.
    reports: Reports,
}

impl State {
    /// The state of an empty cluster. `seed` determines the choice among equal nodes.
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Self {
        let named = Profiles::new(&profiles);
        let engine = Engine::new(profiles, seed);
        Self::with(named, Decider::Engine(Box::new(engine)), seed)
    }

    /// The state of an empty cluster whose nodes are spread over shards.
    pub fn with_shards(profile: Profile, lead: Lead) -> Self {
        let decider = Decider::Shards(Box::new(lead));
        // The members that gather draw.
        Self::with(Profiles::new(&[profile]), decider, 0)
    }

    fn with(profiles: Profiles, decider: Decider, seed: u64) -> Self {
        Self {
            profiles,
            decider,
            deciding: Map::default(),
            placed: Vec::new(),
            queue: Queue::default(),
            pods: Map::default(),
            last: None,
            pending: Map::default(),
            nodes: Map::default(),
            extenders: Vec::new(),
            objects: Map::default(),
            rng: Rng::with_seed(seed),
            assumed: Map::default(),
            expiring: VecDeque::new(),
            announced: Map::default(),
            unseen: VecDeque::new(),
            volumes: HashSet::new(),
            binding: Map::default(),
            inexact: Map::default(),
            reports: Reports::default(),
        }
    }

    /// The state with extenders, which the caller asks what [`Step::Ask`] has.
    #[must_use]
    pub fn with_extenders(mut self, extenders: Vec<Extender>) -> Self {
        self.extenders = extenders;
        self
    }

    /// Applies a change of the cluster.
    pub fn apply(&mut self, now: Timestamp, change: &Change) {
        match change {
            Change::App(..) | Change::Listing | Change::Listed => {}
            Change::Node(key, node) => self.apply_node(now, &key.name, node.as_ref()),
            Change::Pod(key, pod) => {
                let key = PodKey {
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                };
                self.apply_pod(now, &key, pod.as_ref());
            }
        }
    }

    /// What the passing of time does: assumed pods expire, backoffs end, old unschedulable pods are tried again.
    pub fn tick(&mut self, now: Timestamp) {
        self.expire_assumed(now);
        self.expire_announced(now);
        let judge = self.profiles.judge(self.decider.snapshot());
        self.queue.flush(now, &judge);
        if let Some(lead) = self.decider.lead() {
            lead.tick(now);
        }
    }

    /// The leader of shards, if they decide.
    pub fn lead(&mut self) -> Option<&mut Lead> {
        self.decider.lead()
    }

    /// The pods in each lane of the queue.
    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    /// The pods that came to lanes of the queue since the last call.
    pub fn take_moves(&mut self) -> Moves {
        self.queue.take_moves()
    }

    /// The numbers of nodes, of pods, and of assumed pods.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        [
            ("nodes", self.nodes.len()),
            ("pods", self.pods.len()),
            ("assumed_pods", self.assumed.len()),
        ]
    }

    /// Lets a pod of the queue count on the node that it is bound or nominated to.
    fn count(&mut self, pod: Pod) {
        if let Some(api) = self.pending.get(pod.key()) {
            self.decider.set_pod(api, pod);
        }
    }

    /// Wakes the pods that a change may help.
    fn wake(&mut self, now: Timestamp, happened: Happened) {
        let judge = self.profiles.judge(self.decider.snapshot());
        self.queue.happened(now, &judge, happened);
    }
}

#[cfg(test)]
mod tests;
