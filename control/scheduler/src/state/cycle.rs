//! The cycle of one pod: it is popped, decided on, and assumed on its node or put back into the queue.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_scheduler_columns::Decision;
use dormouse_scheduler_decide::{Candidate, Nomination, Plugin, Pod, PodKey, Preemption};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use k8s_openapi::jiff::Timestamp;

use super::{Assumed, Consultation, State};
use crate::queue::Popped;

/// What was done for a pod.
#[derive(Debug)]
pub enum Step {
    /// This is to be written.
    Write(Box<Work>),
    /// Extenders are to be asked; [`State::consulted`] goes on with their replies.
    Ask(Box<Consultation>),
    /// It was announced, and the decision waits for the watch to show it.
    Early,
}

impl Step {
    /// When its attempt began, if that was before the step.
    pub fn began(&self) -> Option<Timestamp> {
        match self {
            Self::Write(work) => work.attempt.as_ref().map(Attempt::began),
            Self::Ask(_) | Self::Early => None,
        }
    }

    /// Whether a decision was made: a report about a pod that does not enter the queue is none.
    pub fn is_attempt(&self) -> bool {
        match self {
            Self::Write(work) => work.attempt.is_some(),
            Self::Early => true,
            Self::Ask(_) => false,
        }
    }
}

/// What is to be written about a pod.
#[derive(Debug)]
pub struct Work {
    /// The pod's object.
    pub pod: Arc<ApiPod>,
    /// The attempt; missing for a pod that cannot be read.
    pub attempt: Option<Attempt>,
    /// The decision.
    pub verdict: Verdict,
}

/// An attempt, whose end is reported by [`State::finish`].
#[derive(Clone, Debug)]
pub struct Attempt {
    pub(super) popped: Popped,
    pub(super) plugins: BTreeSet<Plugin>,
    began: Timestamp,
    missing: usize,
}

/// The decision for a pod.
#[derive(Debug)]
pub enum Verdict {
    /// The pod is to be bound to this node.
    Placed(String),
    /// It has no node.
    Rejected(Rejection),
}

/// The reason for which a pod has no node, and what is to be done about it.
#[derive(Debug)]
pub struct Rejection {
    /// The text of the condition and the event.
    pub message: String,
    /// The kind of reason.
    pub reason: Reason,
    /// The nomination to be written: an empty one is removed; `None` leaves it as it is.
    pub nominated: Option<String>,
    /// The pods to be evicted.
    pub eviction: Option<Eviction>,
}

/// The reasons of the condition PodScheduled, by Kubernetes' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nodes or plugins rejected the pod.
    Unschedulable,
    /// The attempt failed.
    SchedulerError,
    /// The pod has scheduling gates.
    SchedulingGated,
}

impl Rejection {
    /// A pod that does not enter the queue.
    pub(super) fn gated(message: String) -> Self {
        Self {
            reason: Reason::SchedulingGated,
            ..Self::failed(message)
        }
    }

    /// An attempt that failed.
    pub(super) fn failed(message: String) -> Self {
        Self {
            message,
            reason: Reason::SchedulerError,
            nominated: None,
            eviction: None,
        }
    }
}

/// Pods that go from a node for another pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The node.
    pub node: String,
    /// The pods.
    pub victims: Vec<Victim>,
    /// Pods of lower priority that lose their nomination to this node.
    pub cleared: Vec<PodKey>,
}

/// A pod that is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its namespace and name.
    pub key: PodKey,
    /// Its uid: another pod of this name is not evicted.
    pub uid: String,
}

impl Attempt {
    /// The number of the attempt for this pod.
    pub fn number(&self) -> u32 {
        self.popped.attempted.attempts
    }

    /// When the attempt began.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// The shards without whose answers it was decided; no decision is exact then.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// When the first attempt for the pod began.
    pub fn first_at(&self) -> Option<Timestamp> {
        self.popped.attempted.first_at
    }

    /// The name of the pod's scheduler.
    pub fn scheduler(&self) -> &str {
        &self.popped.waiting.scheduler
    }

    /// The plugins that rejected the pod.
    pub fn plugins(&self) -> &BTreeSet<Plugin> {
        &self.plugins
    }
}

impl State {
    /// Decides for the next pod of the queue. The caller writes what comes out, and reports the end to [`State::finish`].
    pub fn step(&mut self, now: Timestamp) -> Option<Step> {
        if let Some(report) = self.reports.pop() {
            return Some(Step::Write(report));
        }
        if let Some(work) = self.next_ended(now) {
            return Some(Step::Write(Box::new(work)));
        }
        while self.decider.has_room() {
            let popped = self.queue.pop(now)?;
            if self.decide_early(&popped) {
                return Some(Step::Early);
            }
            // Each pod of the queue has its object.
            let pod = self.pending.get(popped.waiting.pod.key()).cloned()?;
            if self.is_extended(&pod) && !self.assumed.contains_key(popped.waiting.pod.key()) {
                return Some(self.consult(popped, pod, now));
            }
            if let Some(decision) = self.decide(now, &pod, &popped) {
                let work = self.conclude(pod, popped, decision, (now, 0));
                return Some(Step::Write(Box::new(work)));
            }
        }
        None
    }

    /// What follows from the decision for a pod in flight. The attempt began then, and was decided without so many shards.
    pub(super) fn conclude(
        &mut self,
        pod: Arc<ApiPod>,
        popped: Popped,
        decision: Decision,
        (began, missing): (Timestamp, usize),
    ) -> Work {
        let mut plugins = BTreeSet::new();
        let verdict = match decision {
            Decision::Placed { node } => {
                self.assume_for_binding(&popped, &node);
                Verdict::Placed(node.to_string())
            }
            Decision::Gated(status) => {
                plugins.extend(status.plugin);
                Verdict::Rejected(Rejection::gated(status.message()))
            }
            Decision::Error(error) => Verdict::Rejected(Rejection::failed(error)),
            Decision::Unschedulable {
                message,
                plugins: rejectors,
                nomination,
                preemption,
            } => {
                plugins = rejectors;
                let mut rejection = Rejection {
                    reason: Reason::Unschedulable,
                    ..Rejection::failed(message)
                };
                self.nominate(
                    &popped.waiting.pod,
                    nomination,
                    preemption.as_ref(),
                    &mut rejection,
                );
                Verdict::Rejected(rejection)
            }
        };
        let verdict = self.noted(&popped, verdict, missing);
        let attempt = Some(Attempt {
            popped,
            plugins,
            began,
            missing,
        });
        Work {
            pod,
            attempt,
            verdict,
        }
    }

    /// Lets a pod count on its node, until it is seen there or its binding fails.
    fn assume_for_binding(&mut self, popped: &Popped, node: &str) {
        self.queue.placed(popped);
        let pod = &popped.waiting.pod;
        self.assume(pod, node, None);
        self.binding.insert(pod.key().clone(), popped.clone());
    }

    /// Lets a pod of the queue count on a node, until then at most.
    pub(super) fn assume(
        &mut self,
        pod: &Pod,
        node: impl Into<Arc<str>>,
        expires: Option<Timestamp>,
    ) {
        let pod = pod.clone().bound(node, None);
        self.count(pod.clone());
        let assumed = Assumed {
            pod: Arc::new(pod),
            expires,
        };
        self.assumed.insert(assumed.pod.key().clone(), assumed);
    }

    /// What becomes of the pod's nomination: in force at once, and to be written.
    fn nominate(
        &mut self,
        pod: &Arc<Pod>,
        nomination: Nomination,
        preemption: Option<&Preemption>,
        rejection: &mut Rejection,
    ) {
        let node = match (nomination, preemption.and_then(Preemption::chosen)) {
            (Nomination::ToVictims, Some(candidate)) => {
                rejection.eviction = Some(self.eviction(pod, candidate));
                candidate.node.clone()
            }
            (Nomination::Clear, _) => String::new(),
            (Nomination::Keep | Nomination::ToVictims, _) => return,
        };
        if node != pod.nominated_node() {
            let nominated = Pod::clone(pod).nominated(&node);
            self.set_nomination(nominated);
        }
        rejection.nominated = Some(node);
    }

    fn eviction(&mut self, pod: &Pod, candidate: &Candidate) -> Eviction {
        let cleared =
            Preemption::cleared_nominations(self.decider.snapshot(), pod, &candidate.node);
        for key in &cleared {
            if let Some(known) = self.pods.get(key) {
                let without = Pod::clone(&known.pod).nominated("");
                self.set_nomination(without);
            }
        }
        let uid = |key: &PodKey| self.pods.get(key).map(|known| known.uid.clone());
        let victims = candidate.victims.iter().map(|key| Victim {
            key: key.clone(),
            uid: uid(key).unwrap_or_default(),
        });
        Eviction {
            node: candidate.node.clone(),
            victims: victims.collect(),
            cleared,
        }
    }

    /// Puts a pod's nomination in force, for decisions and in the queue.
    fn set_nomination(&mut self, pod: Pod) {
        self.count(pod.clone());
        let pod = Arc::new(pod);
        self.queue.renominated(&pod);
        if let Some(known) = self.pods.get_mut(pod.key()) {
            known.pod = pod;
        }
    }
}
