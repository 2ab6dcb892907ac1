//! The writer: bindings, conditions, nominations, evictions and events, in the store or by a Kubernetes API server.

mod kubernetes;
mod store;

use std::sync::Arc;

use dormouse_cluster::Object;
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;

use crate::state::{Attempt, Eviction, Outcome, Reason, Rejection, Verdict, Victim, inexact};
pub(crate) use kubernetes::Kubernetes;
pub(crate) use store::Store;

/// Where decisions are written; clones share the connection.
#[derive(Clone)]
pub(crate) enum Writer {
    Store(Store),
    Kubernetes(Arc<Kubernetes>),
}

/// An event about a pod.
struct Occurred<'a> {
    is_warning: bool,
    reason: &'a str,
    /// What the scheduler did.
    action: &'a str,
    message: &'a str,
}

/// The pod that was evicted, none if it is gone; or the error's text.
type Evicted = Result<Option<Pod>, String>;

impl Writer {
    /// Writes the decision of an attempt for a pod; there is none for a pod that is not in the queue.
    pub(crate) async fn write(
        &self,
        pod: &Pod,
        verdict: &Verdict,
        attempt: Option<&Attempt>,
    ) -> Outcome {
        match verdict {
            Verdict::Placed(node) => {
                let missing = attempt.map_or(0, Attempt::missing);
                self.place(pod, node, missing).await
            }
            Verdict::Rejected(rejection) => {
                let scheduler = attempt.map_or("", Attempt::scheduler);
                self.reject(pod, rejection, scheduler).await
            }
        }
    }

    /// Binds a pod to its node, decided without so many shards.
    async fn place(&self, pod: &Pod, node: &str, missing: usize) -> Outcome {
        let is_bound = match self {
            Self::Store(store) => store.bind(pod, node).await,
            Self::Kubernetes(kubernetes) => kubernetes.bind(pod, node).await,
        };
        if !is_bound {
            return Outcome::Failed;
        }
        tracing::info!(pod = %pod.key(), node, "pod bound");
        let occurred = Occurred {
            is_warning: false,
            reason: "Scheduled",
            action: "Binding",
            message: &format!(
                "Successfully assigned {} to {node}{}",
                pod.key(),
                inexact(missing)
            ),
        };
        self.record(pod, &occurred).await;
        Outcome::Bound
    }

    /// Records why a pod has no node, and evicts the pods that are to go for it.
    async fn reject(&self, pod: &Pod, rejection: &Rejection, scheduler: &str) -> Outcome {
        tracing::info!(pod = %pod.key(), reason = %rejection.message, "pod is unschedulable");
        if rejection.reason != Reason::SchedulingGated {
            let occurred = Occurred {
                is_warning: true,
                reason: "FailedScheduling",
                action: "Scheduling",
                message: &rejection.message,
            };
            self.record(pod, &occurred).await;
        }
        match self {
            Self::Store(store) => store.explain(pod, rejection).await,
            Self::Kubernetes(kubernetes) => kubernetes.explain(pod, rejection).await,
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
                        message: &format!("Preempted by pod {uid} on node {}", eviction.node),
                    };
                    self.record(&evicted, &occurred).await;
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
        match self {
            Self::Store(store) => store.clear_nomination(key).await,
            Self::Kubernetes(kubernetes) => kubernetes.clear_nomination(key).await,
        }
    }

    async fn evict(&self, victim: &Victim, scheduler: &str) -> Evicted {
        let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
        match self {
            Self::Store(store) => store.evict(victim, &message).await,
            Self::Kubernetes(kubernetes) => kubernetes.evict(victim, &message).await,
        }
    }

    async fn record(&self, pod: &Pod, occurred: &Occurred<'_>) {
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
