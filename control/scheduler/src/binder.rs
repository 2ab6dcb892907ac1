//! The binder: writes the binding of one pod to the store, or an event about why it has none.

use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::client::Guard;
use dormouse_cluster::events::{self, EventType, Occurrence};
use dormouse_cluster::{Client, ClientError, Key, Object, pod};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

use crate::nodes::FitError;

/// Pause after a failed write; bounds the rate of retries while the store is not reachable.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The outcome of one scheduling cycle.
pub(crate) enum Outcome {
    /// The binding was written.
    Bound(Key),
    /// The binding was not written: the pod must be scheduled again.
    Failed(Key),
    /// The pod fits no node.
    Unschedulable,
}

/// Binds a pod to the node that was placed for it, or records why there is none.
pub(crate) async fn run(
    client: Client,
    pod: Arc<Pod>,
    placed: Result<String, FitError>,
    outcomes: mpsc::Sender<Outcome>,
) {
    let key = pod.key();
    let outcome = match placed {
        Ok(node) if bind(&client, &pod, &node).await => Outcome::Bound(key),
        Ok(_) => Outcome::Failed(key),
        Err(error) => {
            tracing::info!(pod = %key, reason = %error, "pod is unschedulable");
            let occurrence = Occurrence {
                type_: EventType::Warning,
                reason: "FailedScheduling",
                message: &error.to_string(),
            };
            record(&client, &pod, occurrence).await;
            explain(&client, &pod, &error).await;
            Outcome::Unschedulable
        }
    };
    // The receiver is dropped only at shutdown.
    drop(outcomes.send(outcome).await);
}

/// Writes into the pod's status why it has no node, unless it is there.
async fn explain(client: &Client, pod: &Pod, error: &FitError) {
    let message = error.to_string();
    if pod::waits_because(pod).is_some_and(|because| because.message == message) {
        return;
    }
    let set = |pod: &mut Pod| {
        let waits = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.node_name.is_none());
        waits && pod::set_unscheduled(pod, "Unschedulable", &message, Timestamp::now())
    };
    match client.modify(&pod.key(), set).await {
        Ok(_) | Err(ClientError::NotFound { .. }) => {}
        Err(error) => {
            tracing::warn!(pod = %pod.key(), %error, "cannot write why a pod has no node");
        }
    }
}

async fn bind(client: &Client, pod: &Pod, node: &str) -> bool {
    let mut bound = pod.clone();
    bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod::set_scheduled(&mut bound, Timestamp::now());
    match client.update(bound, &Guard::at(pod.revision())).await {
        Ok(_) => {
            tracing::info!(pod = %pod.key(), node, "pod bound");
            let occurrence = Occurrence {
                type_: EventType::Normal,
                reason: "Scheduled",
                message: &format!("Successfully assigned {} to {node}", pod.key()),
            };
            record(client, pod, occurrence).await;
            true
        }
        Err(ClientError::Conflict { .. } | ClientError::NotFound { .. }) => false,
        Err(error) => {
            tracing::warn!(pod = %pod.key(), node, %error, "cannot write a binding, retrying");
            tokio::time::sleep(RETRY_AFTER).await;
            false
        }
    }
}

async fn record(client: &Client, pod: &Pod, occurrence: Occurrence<'_>) {
    if let Err(error) = events::record(client, &events::reference(pod), &occurrence).await {
        tracing::warn!(pod = %pod.key(), reason = occurrence.reason, %error, "cannot record an event");
    }
}
