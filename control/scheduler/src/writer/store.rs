//! Decisions in our store, as guarded writes of whole objects.

use std::time::Duration;

use dormouse_cluster::client::Guard;
use dormouse_cluster::events::{self, EventType, Occurrence};
use dormouse_cluster::pod::{self, Because, set_condition, set_nomination};
use dormouse_cluster::{Client, ClientError, Key, Object};
use dormouse_scheduler_decide::PodKey;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;

use super::{DISRUPTION_TARGET, Evicted, Occurred, PREEMPTION_BY_SCHEDULER, reason_of};
use crate::state::{Rejection, Victim};

/// Pause after a failed write; bounds the rate of retries while the store is not reachable.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Attempts to evict a pod whose object others write to.
const ATTEMPTS_MAX: u32 = 16;

/// The store.
#[derive(Clone)]
pub(crate) struct Store(pub(crate) Client);

impl Store {
    /// Binds a pod to its node, if both still exist; returns whether the pod is there.
    pub(super) async fn bind(&self, pod: &Pod, node: &str) -> bool {
        let guarded = self.0.beside::<Node>(&Key::cluster_scoped(node));
        // Beside the future, which is copied on its way to a task.
        let mut bound = Box::new(pod.clone());
        bound.metadata.resource_version = None;
        set_node(&mut bound, node);
        let replaced = guarded.replace(&*bound, &Guard::at(pod.revision())).await;
        let mut written = replaced.map(|_revision| true);
        if matches!(written, Err(ClientError::Conflict { .. })) {
            // Mostly a write of its status.
            let change = |found: &mut Pod| is_same(found, pod) && set_node(found, node);
            let modified = Box::pin(guarded.modify(&pod.key(), change)).await;
            written = modified.map(|found| is_same(&found, pod) && is_on(&found, node));
        }
        match written {
            Ok(is_bound) => is_bound,
            // The pod or the node is gone.
            Err(
                ClientError::Conflict { .. }
                | ClientError::NotFound { .. }
                | ClientError::Fenced { .. },
            ) => false,
            Err(error) => {
                tracing::warn!(pod = %pod.key(), node, %error, "cannot write a binding, retrying");
                tokio::time::sleep(RETRY_AFTER).await;
                false
            }
        }
    }

    /// Writes the condition and the nomination of a pod, unless they are there.
    pub(super) async fn explain(&self, pod: &Pod, rejection: &Rejection) {
        let set = |found: &mut Pod| {
            let spec = found.spec.as_ref();
            if !is_same(found, pod) || spec.is_none_or(|spec| spec.node_name.is_some()) {
                return false;
            }
            let nominated = rejection.nominated.as_ref();
            let is_nominated = nominated.is_some_and(|node| set_nomination(found, node));
            let (reason, now) = (reason_of(rejection), Timestamp::now());
            pod::set_unscheduled(found, reason, &rejection.message, now) || is_nominated
        };
        match self.0.modify(&pod.key(), set).await {
            Ok(_) | Err(ClientError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(pod = %pod.key(), %error, "cannot write why a pod has no node");
            }
        }
    }

    pub(super) async fn clear_nomination(&self, key: &PodKey) {
        let clear = |pod: &mut Pod| set_nomination(pod, "");
        match self.0.modify(&key_of(key), clear).await {
            Ok(_) | Err(ClientError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(pod = %key, %error, "cannot remove a nomination"),
        }
    }

    pub(super) async fn evict(&self, victim: &Victim, message: &str) -> Evicted {
        let evicted = self.mark_and_delete(victim, message).await;
        evicted.map_err(|error| error.to_string())
    }

    async fn mark_and_delete(
        &self,
        victim: &Victim,
        message: &str,
    ) -> Result<Option<Pod>, ClientError> {
        let key = key_of(&victim.key);
        let mut last = ClientError::Conflict {
            path: key.to_string(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let mark = |pod: &mut Pod| is_victim(pod, victim) && set_target(pod, message);
            let marked = match self.0.modify(&key, mark).await {
                Ok(marked) if is_victim(&marked, victim) => marked,
                Ok(_) | Err(ClientError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let guard = Guard::at(marked.revision());
            match self.0.delete::<Pod>(&key, &guard).await {
                Ok(_) => return Ok(Some(marked)),
                Err(ClientError::NotFound { .. }) => return Ok(None),
                Err(error @ ClientError::Conflict { .. }) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    pub(super) async fn record(&self, about: &Pod, occurred: &Occurred) {
        let type_ = if occurred.is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        };
        let occurrence = Occurrence {
            type_,
            reason: occurred.reason,
            message: &occurred.message,
        };
        if let Err(error) = events::record(&self.0, &events::reference(about), &occurrence).await {
            tracing::warn!(pod = %about.key(), reason = occurred.reason, %error, "cannot record an event");
        }
    }
}

fn key_of(key: &PodKey) -> Key {
    Key::new(&*key.namespace, &*key.name)
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

fn is_victim(pod: &Pod, victim: &Victim) -> bool {
    pod.metadata.uid.as_deref().unwrap_or_default() == victim.uid
}

/// Sets the condition of a pod that is evicted; returns whether it was not there.
fn set_target(pod: &mut Pod, message: &str) -> bool {
    let because = Because {
        reason: PREEMPTION_BY_SCHEDULER.to_owned(),
        message: message.to_owned(),
    };
    let status = pod.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.clone();
    let now = Timestamp::now();
    set_condition(conditions, DISRUPTION_TARGET, true, Some(because), now);
    *conditions != before
}

#[cfg(test)]
mod tests {
    use dormouse_store::{Store as Server, server};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_util::sync::{CancellationToken, DropGuard};

    use super::*;

    async fn store() -> (Store, DropGuard) {
        let shutdown = CancellationToken::new();
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(server::serve(listener, Server::new(), shutdown.clone()));
        let client = Client::connect(&endpoint).await.unwrap();
        (Store(client), shutdown.drop_guard())
    }

    async fn create(store: &Store, uid: &str) -> Pod {
        let pod = json!({"metadata": {"name": "a", "namespace": "default", "uid": uid}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        store.0.create(&pod).await.unwrap()
    }

    async fn node_of(store: &Store) -> Option<String> {
        let pod: Option<Pod> = store.0.get(&Key::new("default", "a")).await.unwrap();
        pod.unwrap().spec.unwrap().node_name
    }

    #[tokio::test]
    async fn a_pod_is_bound_only_to_a_node_that_exists() {
        let (store, _end) = store().await;
        let pod = create(&store, "u").await;
        assert!(!store.bind(&pod, "n1").await);
        assert_eq!(node_of(&store).await, None);
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        store.0.create(&node).await.unwrap();
        // Another write came before the binding.
        store
            .0
            .modify(&pod.key(), |pod: &mut Pod| set_nomination(pod, "n2"))
            .await
            .unwrap();
        assert!(store.bind(&pod, "n1").await);
        assert_eq!(node_of(&store).await.as_deref(), Some("n1"));
    }

    #[tokio::test]
    async fn a_pod_that_replaced_another_is_neither_bound_nor_evicted_in_its_place() {
        let (store, _end) = store().await;
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
        store.0.create(&node).await.unwrap();
        let old = create(&store, "old").await;
        store
            .0
            .delete::<Pod>(&old.key(), &Guard::default())
            .await
            .unwrap();
        let new = create(&store, "new").await;
        assert!(!store.bind(&old, "n1").await);
        assert_eq!(node_of(&store).await, None);
        let victim = |uid: &str| Victim {
            key: PodKey {
                namespace: "default".to_owned(),
                name: "a".to_owned(),
            },
            uid: uid.to_owned(),
        };
        assert_eq!(store.evict(&victim("old"), "why").await, Ok(None));
        let evicted = store.evict(&victim("new"), "why").await.unwrap().unwrap();
        assert_eq!(evicted.metadata.uid, new.metadata.uid);
        let condition = evicted.status.unwrap().conditions.unwrap().remove(0);
        let of = (
            condition.type_.as_str(),
            condition.reason.as_deref(),
            condition.message.as_deref(),
        );
        assert_eq!(
            of,
            (
                "DisruptionTarget",
                Some("PreemptionByScheduler"),
                Some("why")
            )
        );
        assert_eq!(store.0.get::<Pod>(&new.key()).await.unwrap(), None);
    }
}
