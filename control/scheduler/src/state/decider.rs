//! The part that decides: an engine in this process, or the leader of shards, whose decisions come later.

use std::sync::Arc;

use dormouse_scheduler_columns::{Decision, Engine};
use dormouse_scheduler_decide::{Attempt, Malformed, Node, Pod, PodKey, Snapshot, Vetoes};
use dormouse_scheduler_shard::{Kind, Thing};
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};

use crate::shards::lead::{Ended, Lead};

/// The part that decides. Both have the whole cluster.
pub(super) enum Decider {
    Engine(Box<Engine>),
    Shards(Box<Lead>),
}

impl Decider {
    /// The cluster, as of the last decision where it was changed since.
    pub(super) fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Engine(engine) => engine.snapshot(),
            Self::Shards(lead) => lead.snapshot(),
        }
    }

    /// The leader of shards.
    pub(super) fn lead(&mut self) -> Option<&mut Lead> {
        match self {
            Self::Engine(_) => None,
            Self::Shards(lead) => Some(lead),
        }
    }

    pub(super) fn set_node(&mut self, api: &ApiNode, node: Node) {
        match self {
            Self::Engine(engine) => engine.set_node(node),
            Self::Shards(lead) => lead.set_node(api, node),
        }
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        match self {
            Self::Engine(engine) => engine.remove_node(name),
            Self::Shards(lead) => lead.remove_node(name),
        }
    }

    /// Lets a pod count on the node that it is bound or nominated to.
    pub(super) fn set_pod(&mut self, api: &ApiPod, pod: Pod) {
        match self {
            Self::Engine(engine) => engine.set_pod(pod),
            Self::Shards(lead) => lead.set_pod(api, pod),
        }
    }

    pub(super) fn remove_pod(&mut self, key: &PodKey) {
        match self {
            Self::Engine(engine) => engine.remove_pod(key),
            Self::Shards(lead) => lead.remove_pod(key),
        }
    }

    pub(super) fn set_thing(&mut self, thing: Thing) -> Result<(), Malformed> {
        match self {
            Self::Engine(engine) => thing.set(engine.cluster()),
            Self::Shards(lead) => lead.set_thing(thing),
        }
    }

    pub(super) fn remove_thing(&mut self, kind: Kind, namespace: &str, name: &str) {
        match self {
            Self::Engine(engine) => kind.remove(engine.cluster(), namespace, name),
            Self::Shards(lead) => lead.remove_thing(kind, namespace, name),
        }
    }

    /// Whether an attempt may begin now.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Engine(_) => true,
            Self::Shards(lead) => lead.has_room(),
        }
    }

    /// Decides for a pod; `None` if the decision comes later.
    pub(super) fn decide(&mut self, scheduler: &str, api: &ApiPod, pod: &Pod) -> Option<Decision> {
        match self {
            Self::Engine(engine) => Some(engine.decide(scheduler, pod)),
            Self::Shards(lead) => lead.begin(api, pod),
        }
    }

    /// A decision that came later.
    pub(super) fn take_ended(&mut self) -> Option<(PodKey, Ended)> {
        self.lead().and_then(Lead::take_ended)
    }

    /// Decides for a pod if that takes no exchange with shards.
    pub(super) fn decide_at_once(&mut self, scheduler: &str, pod: &Pod) -> Option<Decision> {
        match self {
            Self::Engine(engine) => Some(engine.decide(scheduler, pod)),
            Self::Shards(_) => None,
        }
    }

    /// What an attempt finds with the verdicts of extenders, which only an engine asks; `None` without a profile of this name.
    pub(super) fn attempt_with(
        &mut self,
        scheduler: &str,
        pod: &Pod,
        vetoes: Arc<Vetoes>,
    ) -> Option<Attempt> {
        match self {
            Self::Engine(engine) => engine.attempt_with(scheduler, pod, vetoes),
            Self::Shards(_) => None,
        }
    }

    /// Lets the pod share memory with equal ones.
    pub(super) fn share(&mut self, pod: &mut Pod) {
        if let Self::Engine(engine) = self {
            engine.share(pod);
        }
    }
}
