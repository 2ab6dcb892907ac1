//! A scheduler of one part beside the sharded one: each decision must be one that it could make.

use dormouse_scheduler_decide::{Node, Outcome, Pod, PodKey, Profile, Scheduler, Snapshot};
use dormouse_scheduler_shard::{Effect, Object};
use k8s_openapi::api::core::v1::{Node as ApiNode, Pod as ApiPod};

use super::api::Api;

/// A change of the cluster.
pub(super) enum Change {
    Node(Object<ApiNode>),
    NodeGone(String),
    PodGone(PodKey),
}

/// The whole cluster.
pub(super) struct Shadow {
    snapshot: Snapshot,
    scheduler: Scheduler,
    /// Changes that came during an attempt, which does not see them.
    later: Vec<Change>,
    pub(super) placed: usize,
    pub(super) rejected: usize,
}

impl Shadow {
    pub(super) fn new() -> Self {
        Self {
            snapshot: Snapshot::default(),
            scheduler: Scheduler::new(Profile::default().with_percentage(100)),
            later: Vec::new(),
            placed: 0,
            rejected: 0,
        }
    }

    pub(super) fn change(&mut self, change: Change, is_in_flight: bool) {
        self.later.push(change);
        if !is_in_flight {
            self.catch_up();
        }
    }

    /// An attempt is in flight.
    pub(super) fn begun(&mut self) {
        self.snapshot.refresh();
    }

    /// No attempt is in flight.
    pub(super) fn catch_up(&mut self) {
        for change in self.later.drain(..) {
            match change {
                Change::Node(node) => self.snapshot.set_node(Node::parse(&node).unwrap()),
                Change::NodeGone(name) => self.snapshot.remove_node(&name),
                Change::PodGone(key) => self.snapshot.remove_pod(&key),
            }
        }
    }

    /// Compares a decision, and applies it.
    pub(super) fn decided(&mut self, pod: &ApiPod, effect: &Effect) -> Result<(), String> {
        let pod = Pod::parse(pod).unwrap();
        let attempt = self.scheduler.attempt(&self.snapshot, &pod);
        let wrong = || Err(format!("{effect:?} instead of {attempt:?}"));
        match effect {
            Effect::Bind { node, .. } => {
                if !attempt.best().contains(&node.as_str()) {
                    return wrong();
                }
                self.snapshot.set_pod(pod.bound(node.as_str(), None));
                self.placed += 1;
            }
            Effect::Reject {
                rejection, cleared, ..
            } => {
                let message = Outcome::Unschedulable(rejection.message.clone());
                if attempt.outcome != message || attempt.unschedulable_plugins != rejection.plugins
                {
                    return wrong();
                }
                let found = attempt.preemption.clone().unwrap_or_default();
                let is_right = match &rejection.victims {
                    None => found.candidates.is_empty(),
                    Some(victims) => found
                        .best()
                        .into_iter()
                        .any(|one| (&one.node, &one.victims) == (&victims.node, &victims.pods)),
                };
                if !is_right {
                    return wrong();
                }
                for key in cleared {
                    self.snapshot.remove_nomination(key);
                }
                match &rejection.victims {
                    Some(victims) => self.snapshot.set_pod(pod.nominated(&victims.node)),
                    None if rejection.is_cleared => self.snapshot.remove_nomination(pod.key()),
                    None => {}
                }
                self.rejected += 1;
            }
            Effect::Fail(..) | Effect::Inexact(..) => return wrong(),
        }
        Ok(())
    }
}

/// The pod that an effect is about.
pub(super) fn pod_of(effect: &Effect) -> &PodKey {
    match effect {
        Effect::Bind { key, .. }
        | Effect::Reject { key, .. }
        | Effect::Fail(key, _)
        | Effect::Inexact(key, _) => key,
    }
}

/// Whether a scheduler of one part has no node for a pod either.
pub(super) fn is_unschedulable(api: &Api, pod: &ApiPod) -> bool {
    let mut snapshot = Snapshot::default();
    for node in api.nodes.values() {
        snapshot.set_node(Node::parse(node).unwrap());
    }
    for stored in api.pods.values() {
        let pod = Pod::parse(&stored.object).unwrap();
        snapshot.set_pod(match &stored.node {
            Some(node) => pod.bound(node.as_str(), None),
            None => pod,
        });
    }
    snapshot.refresh();
    let mut scheduler = Scheduler::new(Profile::default().with_percentage(100));
    let attempt = scheduler.attempt(&snapshot, &Pod::parse(pod).unwrap());
    matches!(attempt.outcome, Outcome::Unschedulable(_))
}
