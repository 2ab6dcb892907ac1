//! Writes one binding to the store, or tells people why there is none.

use std::sync::Arc;
use std::time::Duration;

use dormouse_cluster::client::Guard;
use dormouse_cluster::{Client, ClientError, Key, Object, events};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::nodes::Unfit;

/// Pause after a store that could not be written, so that a lost store is not asked without end.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What became of one placement.
pub(crate) enum Outcome {
    /// The binding was written.
    Bound(Key),
    /// It was not: the pod is to be placed again.
    Unbound(Key),
    /// There was none to write: people were told why.
    Told,
}

/// Carries one placement out.
pub(crate) async fn run(
    client: Client,
    pod: Arc<Pod>,
    placed: Result<String, Unfit>,
    outcomes: mpsc::Sender<Outcome>,
) {
    let key = pod.key();
    let outcome = match placed {
        Ok(node) if bind(&client, &pod, &node).await => Outcome::Bound(key),
        Ok(_) => Outcome::Unbound(key),
        Err(unfit) => {
            tracing::info!(pod = %key, reason = %unfit, "no node takes the pod");
            tell(
                &client,
                &pod,
                "Warning",
                "FailedScheduling",
                &unfit.to_string(),
            )
            .await;
            Outcome::Told
        }
    };
    // The owner is gone only at shutdown.
    drop(outcomes.send(outcome).await);
}

async fn bind(client: &Client, pod: &Pod, node: &str) -> bool {
    let mut bound = pod.clone();
    bound.spec.get_or_insert_default().node_name = Some(node.to_owned());
    match client.update(&bound, &Guard::at(pod.revision())).await {
        Ok(_) => {
            tracing::info!(pod = %pod.key(), node, "pod bound");
            let message = format!("Successfully assigned {} to {node}", pod.key());
            tell(client, pod, "Normal", "Scheduled", &message).await;
            true
        }
        Err(ClientError::Conflict { .. } | ClientError::NotFound { .. }) => false,
        Err(error) => {
            tracing::warn!(pod = %pod.key(), node, %error, "cannot write a binding, trying again");
            tokio::time::sleep(RETRY_AFTER).await;
            false
        }
    }
}

async fn tell(client: &Client, pod: &Pod, type_: &str, reason: &str, message: &str) {
    if let Err(error) =
        events::record(client, &events::reference(pod), type_, reason, message).await
    {
        tracing::warn!(pod = %pod.key(), reason, %error, "cannot record an event");
    }
}
