//! The writer: bindings, conditions, nominations, evictions and events, in the store or by a Kubernetes API server.

mod events;
mod kubernetes;
mod store;

use std::sync::Arc;

use dormouse_cluster::Object;
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;

use crate::extenders::Extenders;
use crate::metrics::Metrics;
use crate::state::{Attempt, Eviction, Outcome, Reason, Rejection, Verdict, Victim, inexact};
use events::Events;
pub(crate) use kubernetes::Kubernetes;
pub(crate) use store::Store;

/// Where decisions are written; clones share the connection.
#[derive(Clone)]
pub(crate) enum Target {
    Store(Store),
    Kubernetes(Arc<Kubernetes>),
}

/// Writes decisions; clones share the connection and the queue of events.
#[derive(Clone)]
pub(crate) struct Writer {
    target: Target,
    events: Events,
}

/// An event about a pod.
struct Occurred {
    is_warning: bool,
    reason: &'static str,
    /// What the scheduler did.
    action: &'static str,
    message: String,
}

/// The pod that was evicted, none if it is gone; or the error's text.
type Evicted = Result<Option<Pod>, String>;

/// Writes to our store at one time, which share requests of 64.
const STORE_WRITES_MAX: usize = 256;
/// Writes by a Kubernetes API server at one time, each of which is a request.
const KUBERNETES_WRITES_MAX: usize = 64;

impl Writer {
    /// Decisions that are written at one time.
    pub(crate) fn writes_max(&self) -> usize {
        match self.target {
            Target::Store(_) => STORE_WRITES_MAX,
            Target::Kubernetes(_) => KUBERNETES_WRITES_MAX,
        }
    }

    pub(crate) fn new(target: Target, metrics: &Metrics) -> Self {
        let events = Events::start(target.clone(), metrics.clone());
        Self { target, events }
    }

    /// Writes the decision of an attempt for a pod, of which there is none for a pod that is not in the queue; an extender may
    /// bind it.
    pub(crate) async fn write(
        &self,
        pod: &Arc<Pod>,
        verdict: &Verdict,
        (attempt, extenders): (Option<&Attempt>, &Extenders),
    ) -> Outcome {
        match verdict {
            Verdict::Placed(node) => {
                let missing = attempt.map_or(0, Attempt::missing);
                self.place(pod, (node, missing), extenders).await
            }
            Verdict::Rejected(rejection) => {
                let scheduler = attempt.map_or("", Attempt::scheduler);
                Box::pin(self.reject(pod, rejection, scheduler)).await
            }
        }
    }

    /// Binds a pod to its node, decided without so many shards.
    async fn place(
        &self,
        pod: &Arc<Pod>,
        (node, missing): (&str, usize),
        extenders: &Extenders,
    ) -> Outcome {
        let is_bound = match (extenders.bind(pod, node).await, &self.target) {
            (Some(Ok(())), _) => true,
            (Some(Err(error)), _) => {
                tracing::warn!(pod = %pod.key(), node, error, "an extender did not bind the pod, retrying");
                false
            }
            (None, Target::Store(store)) => store.bind(pod, node).await,
            // A write's future has the size of the largest of these, and it is copied on its way to a task.
            (None, Target::Kubernetes(kubernetes)) => Box::pin(kubernetes.bind(pod, node)).await,
        };
        if !is_bound {
            return Outcome::Failed;
        }
        tracing::info!(pod = %pod.key(), node, "pod bound");
        let occurred = Occurred {
            is_warning: false,
            reason: "Scheduled",
            action: "Binding",
            message: format!(
                "Successfully assigned {} to {node}{}",
                pod.key(),
                inexact(missing)
            ),
        };
        self.events.record(Arc::clone(pod), occurred);
        Outcome::Bound
    }

    /// Records why a pod has no node, and evicts the pods that are to go for it.
    async fn reject(&self, pod: &Arc<Pod>, rejection: &Rejection, scheduler: &str) -> Outcome {
        tracing::info!(pod = %pod.key(), reason = %rejection.message, "pod is unschedulable");
        if rejection.reason != Reason::SchedulingGated {
            let occurred = Occurred {
                is_warning: true,
                reason: "FailedScheduling",
                action: "Scheduling",
                message: rejection.message.clone(),
            };
            self.events.record(Arc::clone(pod), occurred);
        }
        match &self.target {
            Target::Store(store) => store.explain(pod, rejection).await,
            Target::Kubernetes(kubernetes) => kubernetes.explain(pod, rejection).await,
        }
        if let Some(eviction) = &rejection.eviction {
            return self.evict_all(pod, eviction, scheduler).await;
        }
        match rejection.reason {
            Reason::SchedulerError => Outcome::Error,
            Reason::Unschedulable | Reason::SchedulingGated => Outcome::Rejected,
        }
    }

    /// Evicts all victims, and ends the nominations that the eviction makes useless.
    async fn evict_all(&self, pod: &Pod, eviction: &Eviction, scheduler: &str) -> Outcome {
        for key in &eviction.cleared {
            self.clear_nomination(key).await;
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut outcome = Outcome::Rejected;
        for victim in &eviction.victims {
            // It was placed directly, and is not seen yet: there is nothing to delete. The pod is tried again.
            if victim.uid.is_empty() {
                outcome = Outcome::Error;
                continue;
            }
            match self.evict(victim, scheduler).await {
                Ok(None) => {}
                Ok(Some(evicted)) => {
                    tracing::info!(pod = %victim.key, node = eviction.node, "pod preempted");
                    let occurred = Occurred {
                        is_warning: false,
                        reason: "Preempted",
                        action: "Preempting",
                        message: format!("Preempted by pod {uid} on node {}", eviction.node),
                    };
                    self.events.record(Arc::new(evicted), occurred);
                }
                Err(error) => {
                    tracing::warn!(pod = %victim.key, error, "cannot preempt a pod");
                    outcome = Outcome::Error;
                }
            }
        }
        outcome
    }

    async fn clear_nomination(&self, key: &PodKey) {
        match &self.target {
            Target::Store(store) => store.clear_nomination(key).await,
            Target::Kubernetes(kubernetes) => kubernetes.clear_nomination(key).await,
        }
    }

    async fn evict(&self, victim: &Victim, scheduler: &str) -> Evicted {
        let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
        match &self.target {
            Target::Store(store) => store.evict(victim, &message).await,
            Target::Kubernetes(kubernetes) => kubernetes.evict(victim, &message).await,
        }
    }
}

impl Target {
    async fn record(&self, pod: &Pod, occurred: &Occurred) {
        match self {
            Self::Store(store) => store.record(pod, occurred).await,
            Self::Kubernetes(kubernetes) => kubernetes.record(pod, occurred).await,
        }
    }
}

/// The reason of the condition PodScheduled.
fn reason_of(rejection: &Rejection) -> &'static str {
    match rejection.reason {
        Reason::Unschedulable => "Unschedulable",
        Reason::SchedulerError => "SchedulerError",
        Reason::SchedulingGated => "SchedulingGated",
    }
}

/// The condition of pods that are evicted, and its reason.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
