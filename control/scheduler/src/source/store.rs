//! The store as the source: the reflector's pods and nodes, namespaces and Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_cluster::follow::{Followed, follow};
use dormouse_cluster::reflector::Batch;
use dormouse_cluster::{Change, Client, Key, Object};
use k8s_openapi::api::core::v1::{Namespace, Service};
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
