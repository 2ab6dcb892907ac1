//! The leader of shards as the scheduler's state uses it: the cluster, of which shards have the nodes, and attempts that end
//! later than they begin. Pure: time is an argument, and messages come out.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{
    Candidate, Malformed, Node, Nomination, Pod, PodKey, Preemption, Profile, Snapshot,
};
use dormouse_scheduler_shard::{
    Effect, Kind, Leader, Limits, Member, Message, Output, Rejection, Renewal, Seen, Sent, Thing,
    View,
};
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};
use k8s_openapi::jiff::Timestamp;

use super::registration::{Registered, Role};
use super::trimmed;

/// The leader.
pub struct Lead {
    /// For queueing hints and explanations.
    cluster: Snapshot,
    leader: Leader,
    window: usize,
    /// Attempts whose decision was not taken yet.
    begun: HashSet<PodKey>,
    ended: VecDeque<(PodKey, Ended)>,
}

/// The decision of an attempt.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) decision: Decision,
    /// The shards that had not answered in time.
    pub(crate) missing: usize,
}

impl Lead {
    /// A leader without a term.
    pub fn new(me: Member, profile: &Profile, limits: Limits) -> Self {
        Self {
            cluster: Snapshot::default(),
            leader: Leader::new(me, profile, limits, 0),
            window: limits.window.max(1),
            begun: HashSet::new(),
            ended: VecDeque::new(),
        }
    }

    /// It leads from now on.
    pub(crate) fn lead(&mut self, term: u64) {
        self.leader.lead(term);
    }

    /// The cluster, as all changes until now have made it.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.cluster
    }

    pub(crate) fn view(&self) -> &View {
        self.leader.view()
    }

    pub(crate) fn seen(&self) -> Seen {
        self.leader.seen()
    }

    pub(crate) fn set_node(&mut self, api: &ApiNode, node: Node) {
        self.cluster.set_node(node);
        // It was parsed before.
        drop(self.leader.set_node(trimmed::node(api)));
    }

    pub(crate) fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
        self.leader.remove_node(name);
    }

    /// Adds a pod, bound or nominated, or replaces it.
    pub(crate) fn set_pod(&mut self, api: &ApiPod, pod: Pod) {
        let is_bound = !pod.node_name().is_empty();
        let is_begun = self.begun.contains(pod.key());
        if is_begun && is_bound {
            // Another client has bound it.
            self.end(&pod.key().clone());
            self.leader.remove_pod(pod.key());
        }
        if is_bound || !is_begun {
            // It was parsed before.
            drop(self.leader.set_pod(trimmed::pod(api, &pod)));
        }
        self.cluster.set_pod(pod);
    }

    pub(crate) fn remove_pod(&mut self, key: &PodKey) {
        self.end(key);
        self.leader.remove_pod(key);
        self.cluster.remove_pod(key);
    }

    fn end(&mut self, key: &PodKey) {
        if self.begun.remove(key) {
            self.ended.retain(|(ended, _)| ended != key);
        }
    }

    /// Adds an object that plugins look up, or replaces it.
    pub(crate) fn set_thing(&mut self, thing: Thing) -> Result<(), Malformed> {
        thing.set(&mut self.cluster)?;
        self.leader.set_thing(thing)
    }

    /// Removes such an object.
    pub(crate) fn remove_thing(&mut self, kind: Kind, namespace: &str, name: &str) {
        kind.remove(&mut self.cluster, namespace, name);
        self.leader.remove_thing(kind, namespace, name);
    }

    /// Whether another attempt may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.begun.len() < self.window
    }

    /// Begins an attempt; an error ends it at once.
    pub(crate) fn begin(&mut self, api: &ApiPod, pod: &Pod) -> Option<Decision> {
        if !pod.node_name().is_empty() {
            return Some(Decision::Error("the pod has a node already".to_owned()));
        }
        let submitted = self.leader.submit(trimmed::pod(api, pod));
        if let Err(error) = submitted {
            return Some(Decision::Error(error.to_string()));
        }
        self.begun.insert(pod.key().clone());
        None
    }

    /// The next decision.
    pub(crate) fn take_ended(&mut self) -> Option<(PodKey, Ended)> {
        let ended = self.ended.pop_front()?;
        self.begun.remove(&ended.0);
        Some(ended)
    }

    pub(crate) fn receive(&mut self, now: Timestamp, from: &Member, message: Message) {
        self.leader.receive(from, message, since_epoch(now));
    }

    /// Members have written their Leases; those of others are gone.
    pub(crate) fn set_members(
        &mut self,
        now: Timestamp,
        renewed: Vec<Registered>,
        gone: &[String],
    ) {
        let renewals = renewed.into_iter().map(|one| Renewal {
            is_shard: one.role == Role::Shard,
            lease: one.duration,
            member: one.member,
        });
        self.leader
            .set_members(renewals.collect(), gone, since_epoch(now));
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.leader.tick(since_epoch(now));
    }

    /// The messages to be sent now. Called after all else: decisions are there then.
    pub(crate) fn outputs(&mut self, now: Timestamp) -> Sent {
        self.cluster.refresh();
        let mut sent = Sent::new();
        let mut missing = 0;
        for output in self.leader.outputs(since_epoch(now)) {
            match output {
                Output::Send(to, message) => sent.push((to, message)),
                Output::Effect(Effect::Inexact(_, shards)) => missing = shards,
                Output::Effect(effect) => {
                    self.conclude(effect, missing);
                    missing = 0;
                }
            }
        }
        sent
    }

    fn conclude(&mut self, effect: Effect, missing: usize) {
        let (key, decision) = match effect {
            Effect::Bind { key, node, .. } => {
                // The state writes the binding, and removes the pod from its node if that fails.
                self.leader.bound(&key, true);
                (key, Decision::Placed { node: node.into() })
            }
            Effect::Reject { key, rejection, .. } => (key, rejected(rejection)),
            Effect::Fail(key, error) => (key, Decision::Error(error)),
            Effect::Inexact(..) => return,
        };
        if self.begun.contains(&key) {
            self.ended.push_back((key, Ended { decision, missing }));
        }
    }
}

fn since_epoch(now: Timestamp) -> Duration {
    now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
}

/// A rejection as an engine in this process returns it.
fn rejected(rejection: Rejection) -> Decision {
    let nomination = match (&rejection.victims, rejection.is_cleared) {
        (Some(_), _) => Nomination::ToVictims,
        (None, true) => Nomination::Clear,
        (None, false) => Nomination::Keep,
    };
    let preemption = rejection.victims.map(|victims| Preemption {
        candidates: vec![Arc::new(Candidate {
            node: victims.node,
            victims: victims.pods,
            budget_violations: 0,
            highest_priority: 0,
            priority_sum: 0,
            earliest_start: None,
        })],
        ..Preemption::default()
    });
    Decision::Unschedulable {
        message: rejection.message,
        plugins: rejection.plugins,
        nomination,
        preemption,
    }
}
