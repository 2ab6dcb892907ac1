//! The writer: bindings, conditions, nominations, evictions and events in the store.

mod evict;

use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::client::Guard;
use dormouse_cluster::events::{self, EventType, Occurrence};
use dormouse_cluster::{Client, ClientError, Key, Object, pod};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::state::{Outcome, Reason, Rejection, Verdict};

/// Pause after a failed write; bounds the rate of retries while the store is not reachable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Writes the decision for a pod.
pub(crate) async fn write(
    client: &Client,
    pod: &Arc<Pod>,
    verdict: &Verdict,
    scheduler: &str,
) -> Outcome {
    match verdict {
        Verdict::Placed(node) => bind(client, pod, node).await,
        Verdict::Rejected(rejection) => reject(client, pod, rejection, scheduler).await,
    }
}

/// Binds a pod to its node, if both still exist.
async fn bind(client: &Client, pod: &Pod, node: &str) -> Outcome {
    let guarded = client.beside::<Node>(&Key::cluster_scoped(node));
    let mut bound = pod.clone();
    set_node(&mut bound, node);
    let mut written = guarded.update(bound, &Guard::at(pod.revision())).await;
    if matches!(written, Err(ClientError::Conflict { .. })) {
        // Mostly a write of its status.
        let change = |found: &mut Pod| is_same(found, pod) && set_node(found, node);
        written = guarded.modify(&pod.key(), change).await;
    }
    match written {
        Ok(written) if is_same(&written, pod) && is_on(&written, node) => {
            tracing::info!(pod = %pod.key(), node, "pod bound");
            let message = format!("Successfully assigned {} to {node}", pod.key());
            record(client, pod, EventType::Normal, "Scheduled", &message).await;
            Outcome::Bound
        }
        // The pod was bound by another scheduler, or is another one; or the node is gone.
        Ok(_)
        | Err(
            ClientError::Conflict { .. }
            | ClientError::NotFound { .. }
            | ClientError::Fenced { .. },
        ) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(pod = %pod.key(), node, %error, "cannot write a binding, retrying");
            tokio::time::sleep(RETRY_AFTER).await;
            Outcome::Failed
        }
    }
}

/// Sets the node of a pod without one; returns whether it had none.
fn set_node(pod: &mut Pod, node: &str) -> bool {
    let spec = pod.spec.get_or_insert_default();
    if spec.node_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return false;
    }
    spec.node_name = Some(node.to_owned());
    pod::set_scheduled(pod, Timestamp::now());
    true
}

fn is_same(one: &Pod, other: &Pod) -> bool {
    one.metadata.uid == other.metadata.uid
}

fn is_on(pod: &Pod, node: &str) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.node_name.as_deref() == Some(node))
}

/// Records why a pod has no node, and evicts the pods that are to go for it.
async fn reject(
    client: &Client,
    pod: &Arc<Pod>,
    rejection: &Rejection,
    scheduler: &str,
) -> Outcome {
    tracing::info!(pod = %pod.key(), reason = %rejection.message, "pod is unschedulable");
    if rejection.reason != Reason::SchedulingGated {
        record(
            client,
            pod,
            EventType::Warning,
            "FailedScheduling",
            &rejection.message,
        )
        .await;
    }
    explain(client, pod, rejection).await;
    let Some(eviction) = &rejection.eviction else {
        return match rejection.reason {
            Reason::SchedulerError => Outcome::Error,
            Reason::Unschedulable | Reason::SchedulingGated => Outcome::Rejected,
        };
    };
    evict::run(client, pod, eviction, scheduler).await
}

/// Writes the condition and the nomination of a pod, unless they are there.
async fn explain(client: &Client, pod: &Pod, rejection: &Rejection) {
    let reason = match rejection.reason {
        Reason::Unschedulable => "Unschedulable",
        Reason::SchedulerError => "SchedulerError",
        Reason::SchedulingGated => "SchedulingGated",
    };
    let set = |found: &mut Pod| {
        let waits = found
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_none());
        if !waits || !is_same(found, pod) {
            return false;
        }
        let is_nominated = rejection
            .nominated
            .as_ref()
            .is_some_and(|node| pod::set_nomination(found, node));
        pod::set_unscheduled(found, reason, &rejection.message, Timestamp::now()) || is_nominated
    };
    match client.modify(&pod.key(), set).await {
        Ok(_) | Err(ClientError::NotFound { .. }) => {}
        Err(error) => {
            tracing::warn!(pod = %pod.key(), %error, "cannot write why a pod has no node");
        }
    }
}

async fn record(client: &Client, about: &Pod, type_: EventType, reason: &str, message: &str) {
    let occurrence = Occurrence {
        type_,
        reason,
        message,
    };
    if let Err(error) = events::record(client, &events::reference(about), &occurrence).await {
        tracing::warn!(pod = %about.key(), reason, %error, "cannot record an event");
    }
}
