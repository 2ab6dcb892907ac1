//! The store as the source: the reflector's pods and nodes, namespaces and Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_cluster::follow::{Followed, follow};
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{Change, Client, Key, Object};
use k8s_openapi::api::core::v1::{Namespace, Node, Service, Taint};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BATCHES_MAX, Related, Seen, Source};

/// The name of the reflector's list.
const PODS_AND_NODES: &str = "pods and nodes";

/// Follows a store, of which a reflector delivers pods and nodes. The source ends with the reflector.
pub fn start(
    client: &Client,
    changes: mpsc::Receiver<Batch>,
    shutdown: &CancellationToken,
) -> Source {
    let (sender, seen) = mpsc::channel(BATCHES_MAX);
    let ended = shutdown.child_token();
    forward(client, &ended, &sender, Related::Namespace);
    forward(client, &ended, &sender, Related::Service);
    tokio::spawn(async move {
        forward_changes(changes, sender).await;
        // The others' senders are dropped.
        ended.cancel();
    });
    let kinds = [PODS_AND_NODES, Namespace::PLURAL, Service::PLURAL];
    Source {
        seen,
        kinds: BTreeSet::from(kinds),
    }
}

async fn forward_changes(mut changes: mpsc::Receiver<Batch>, sender: mpsc::Sender<Vec<Seen>>) {
    while let Some(batch) = changes.recv().await {
        let seen = batch.into_iter().map(|(_, change)| match change {
            Change::Listed => Seen::Listed(PODS_AND_NODES),
            Change::Node(key, Some(node)) => {
                Seen::Change(Change::Node(key, Some(with_taint(node))))
            }
            change => Seen::Change(change),
        });
        if sender.send(seen.collect()).await.is_err() {
            return;
        }
    }
}

/// Forwards the objects of one kind.
fn forward<K: Object>(
    client: &Client,
    shutdown: &CancellationToken,
    sender: &mpsc::Sender<Vec<Seen>>,
    related: fn(Key, Option<Arc<K>>) -> Related,
) {
    let mut followed = follow::<K>(client.clone(), shutdown.clone());
    let sender = sender.clone();
    tokio::spawn(async move {
        while let Some(batch) = followed.recv().await {
            let seen = batch.into_iter().map(|one| match one {
                Followed::Object(key, object) => Seen::Related(related(key, object)),
                Followed::Listed => Seen::Listed(K::PLURAL),
            });
            if sender.send(seen.collect()).await.is_err() {
                return;
            }
        }
    });
}

/// A node with the taint that Kubernetes' node lifecycle controller gives to nodes that are not ready: beside our store there
/// is no such controller, and the condition stands alone.
fn with_taint(node: Arc<Node>) -> Arc<Node> {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|one| one.conditions.as_ref())
        .into_iter()
        .flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let key = match ready.map(|ready| ready.status.as_str()) {
        Some("True") => return node,
        Some("False") => "node.kubernetes.io/not-ready",
        _ => "node.kubernetes.io/unreachable",
    };
    let taint = Taint {
        key: key.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let mut node = Arc::unwrap_or_clone(node);
    let spec = node.spec.get_or_insert_default();
    spec.taints.get_or_insert_default().push(taint);
    Arc::new(node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_is_not_ready_has_the_taint_of_kubernetes() {
        let taint = |conditions| {
            let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": conditions}});
            let node = with_taint(Arc::new(serde_json::from_value(node).unwrap()));
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            taints.map(|taints| (taints[0].key.clone(), taints[0].effect.clone()))
        };
        let ready = |status| taint(json!([{"type": "Ready", "status": status}]));
        let unready =
            |key: &str| Some((format!("node.kubernetes.io/{key}"), "NoSchedule".to_owned()));
        assert_eq!(ready("True"), None);
        assert_eq!(ready("False"), unready("not-ready"));
        assert_eq!(ready("Unknown"), unready("unreachable"));
        assert_eq!(taint(json!([])), unready("unreachable"));
    }
}
