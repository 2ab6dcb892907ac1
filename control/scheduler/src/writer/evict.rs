//! The eviction of pods that go for another pod: each gets the condition DisruptionTarget, then it is deleted.

use dormouse_cluster::client::Guard;
use dormouse_cluster::events::EventType;
use dormouse_cluster::pod::{Because, set_condition, set_nomination};
use dormouse_cluster::{Client, ClientError, Key};
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::record;
use crate::state::{Eviction, Outcome, Victim};

/// Attempts to evict a pod whose object others write to.
const ATTEMPTS_MAX: u32 = 16;

/// Evicts all victims, and ends the nominations that the eviction makes useless.
pub(super) async fn run(
    client: &Client,
    pod: &Pod,
    eviction: &Eviction,
    scheduler: &str,
) -> Outcome {
    for key in &eviction.cleared {
        let cleared = client
            .modify(&key_of(key), |pod: &mut Pod| set_nomination(pod, ""))
            .await;
        if let Err(error) = cleared
            && !matches!(error, ClientError::NotFound { .. })
        {
            tracing::warn!(pod = %key, %error, "cannot remove a nomination");
        }
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let message = format!("Preempted by pod {uid} on node {}", eviction.node);
    let mut outcome = Outcome::Rejected;
    for victim in &eviction.victims {
        match evict(client, victim, scheduler).await {
            Ok(None) => {}
            Ok(Some(evicted)) => {
                tracing::info!(pod = %victim.key, node = eviction.node, "pod preempted");
                record(client, &evicted, EventType::Normal, "Preempted", &message).await;
            }
            Err(error) => {
                tracing::warn!(pod = %victim.key, %error, "cannot preempt a pod");
                outcome = Outcome::Error;
            }
        }
    }
    outcome
}

/// Evicts one pod; `None` if it is gone.
async fn evict(
    client: &Client,
    victim: &Victim,
    scheduler: &str,
) -> Result<Option<Pod>, ClientError> {
    let key = key_of(&victim.key);
    let mut last = ClientError::Conflict {
        path: key.to_string(),
    };
    for _ in 0..ATTEMPTS_MAX {
        let mark = |pod: &mut Pod| is_victim(pod, victim) && set_target(pod, scheduler);
        let marked = match client.modify(&key, mark).await {
            Ok(marked) if is_victim(&marked, victim) => marked,
            Ok(_) | Err(ClientError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let guard = Guard::at(dormouse_cluster::Object::revision(&marked));
        match client.delete::<Pod>(&key, &guard).await {
            Ok(_) => return Ok(Some(marked)),
            Err(ClientError::NotFound { .. }) => return Ok(None),
            Err(error @ ClientError::Conflict { .. }) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn key_of(key: &PodKey) -> Key {
    Key::new(&*key.namespace, &*key.name)
}

fn is_victim(pod: &Pod, victim: &Victim) -> bool {
    pod.metadata.uid.as_deref().unwrap_or_default() == victim.uid
}

/// Sets the condition; returns whether it was not there.
fn set_target(pod: &mut Pod, scheduler: &str) -> bool {
    let because = Because {
        reason: "PreemptionByScheduler".to_owned(),
        message: format!("{scheduler}: preempting to accommodate a higher priority pod"),
    };
    let status = pod.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.clone();
    set_condition(
        conditions,
        "DisruptionTarget",
        true,
        Some(because),
        Timestamp::now(),
    );
    *conditions != before
}
