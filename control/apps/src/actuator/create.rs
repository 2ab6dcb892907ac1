//! The creation of a pod, exactly once: a write whose response is lost may have happened, and is repeated under the same key.

use std::time::Duration;

use dormouse_cluster::{Client, ClientError, Object};
use k8s_openapi::api::core::v1::Pod;

/// Attempts of a write without a response. Each takes up to the client's timeout, 5 s.
const ATTEMPTS_MAX: u32 = 4;
/// Pause between attempts; a store that restarts answers again after about this time.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates a pod. Success means that the store has this pod, by its uid, whichever attempt wrote it.
///
/// After an error that leaves the result open, the pod may still appear in the store.
pub(super) async fn create(client: &Client, pod: &Pod) -> Result<(), ClientError> {
    let mut attempts = 1;
    loop {
        match client.insert(pod).await {
            Ok(_) => return Ok(()),
            Err(ClientError::AlreadyExists { path }) => return adopt(client, pod, path).await,
            Err(error) if is_open(&error) && attempts < ATTEMPTS_MAX => {
                tracing::debug!(pod = %pod.key(), %error, attempts, "the creation of a pod had no response");
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the write may have happened.
fn is_open(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Timeout { .. } | ClientError::Unreachable(_)
    )
}

/// The pod at this key is the one to create if an earlier attempt has written it: names are random, uids too.
async fn adopt(client: &Client, pod: &Pod, path: String) -> Result<(), ClientError> {
    let found: Option<Pod> = client.get(&pod.key()).await?;
    let same = found.is_some_and(|found| found.metadata.uid == pod.metadata.uid);
    if same {
        return Ok(());
    }
    Err(ClientError::AlreadyExists { path })
}

#[cfg(test)]
mod tests;
