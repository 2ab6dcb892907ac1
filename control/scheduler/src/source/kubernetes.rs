//! A Kubernetes API server as the source: a list and a watch of each kind.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use dormouse_cluster::{Change, Key};
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BATCHES_MAX, Related, Seen, Source};

/// Follows an API server until `shutdown`; returns the way to add to what the source delivers, too.
pub fn start(client: &Client, shutdown: &CancellationToken) -> (Source, mpsc::Sender<Vec<Seen>>) {
    let (sender, seen) = mpsc::channel(BATCHES_MAX);
    let mut watches = Watches {
        client,
        shutdown,
        sender: &sender,
        kinds: BTreeSet::new(),
    };
    watches.follow("nodes", |key, node| Seen::Change(Change::Node(key, node)));
    watches.follow("pods", |key, pod| Seen::Change(Change::Pod(key, pod)));
    watches.related("namespaces", Related::Namespace);
    watches.related("services", Related::Service);
    watches.related("replicationcontrollers", Related::ReplicationController);
    watches.related("replicasets", Related::ReplicaSet);
    watches.related("statefulsets", Related::StatefulSet);
    watches.related("poddisruptionbudgets", Related::PodDisruptionBudget);
    watches.related("persistentvolumes", Related::PersistentVolume);
    watches.related("persistentvolumeclaims", Related::PersistentVolumeClaim);
    watches.related("storageclasses", Related::StorageClass);
    watches.related("csinodes", Related::CSINode);
    watches.related("csidrivers", Related::CSIDriver);
    watches.related("csistoragecapacities", Related::CSIStorageCapacity);
    watches.related("volumeattachments", Related::VolumeAttachment);
    let kinds = watches.kinds;
    (Source { seen, kinds }, sender)
}

struct Watches<'a> {
    client: &'a Client,
    shutdown: &'a CancellationToken,
    sender: &'a mpsc::Sender<Vec<Seen>>,
    kinds: BTreeSet<&'static str>,
}

/// A kind of objects that can be watched.
trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl Watches<'_> {
    fn related<K: Kind>(
        &mut self,
        kind: &'static str,
        related: impl Fn(Key, Option<Arc<K>>) -> Related + Send + 'static,
    ) {
        self.follow(kind, move |key, object| Seen::Related(related(key, object)));
    }

    fn follow<K: Kind>(
        &mut self,
        kind: &'static str,
        wrap: impl Fn(Key, Option<Arc<K>>) -> Seen + Send + 'static,
    ) {
        self.kinds.insert(kind);
        let api = Api::<K>::all(self.client.clone());
        let sender = self.sender.clone();
        let followed = follow(api, kind, wrap, sender);
        tokio::spawn(self.shutdown.clone().run_until_cancelled_owned(followed));
    }
}

/// Lists and watches the objects of a kind; each list ends with the deletions that no watch has delivered.
async fn follow<K: Kind>(
    api: Api<K>,
    kind: &'static str,
    wrap: impl Fn(Key, Option<Arc<K>>) -> Seen,
    sender: mpsc::Sender<Vec<Seen>>,
) {
    let mut names = Names::default();
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let batch = match event {
            Ok(Event::Init) => {
                names.listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                let key = key_of(&object);
                names.listed.insert(key.clone());
                // Also if the list fails midway: an object that the next list lacks was deleted.
                names.known.insert(key.clone());
                vec![wrap(key, Some(Arc::new(object)))]
            }
            Ok(Event::InitDone) => {
                let gone = names.end_list().into_iter().map(|key| wrap(key, None));
                gone.chain([Seen::Listed(kind)]).collect()
            }
            Ok(Event::Apply(object)) => {
                let key = key_of(&object);
                names.known.insert(key.clone());
                vec![wrap(key, Some(Arc::new(object)))]
            }
            Ok(Event::Delete(object)) => {
                let key = key_of(&object);
                names.known.remove(&key);
                vec![wrap(key, None)]
            }
            Err(error) => {
                tracing::warn!(kind, %error, "a watch of the API server failed, resuming it");
                continue;
            }
        };
        if sender.send(batch).await.is_err() {
            return;
        }
    }
}

/// The names of the objects of a kind.
#[derive(Default)]
struct Names {
    known: HashSet<Key>,
    /// Those of the list that is being read.
    listed: HashSet<Key>,
}

impl Names {
    /// The names that the list has no more.
    fn end_list(&mut self) -> Vec<Key> {
        let listed = std::mem::take(&mut self.listed);
        let gone = self.known.difference(&listed).cloned().collect();
        self.known = listed;
        gone
    }
}

fn key_of<K: Kind>(object: &K) -> Key {
    let meta = object.meta();
    let namespace = meta.namespace.clone().unwrap_or_default();
    Key::new(namespace, meta.name.clone().unwrap_or_default())
}
