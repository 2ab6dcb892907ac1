//! A follower of the objects of one kind: a list, then its changes; after a gap the list again.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::{KeyRange, Previous, chain, decode_bytes};
use crate::{Client, ClientError, Key, Object};

/// Batches queued for the receiver; a full queue blocks the watch.
const BATCHES_MAX: usize = 16;
/// Pause before a failed watch is followed by another list.
const PAUSE: Duration = Duration::from_secs(1);

/// What a follower delivers.
#[derive(Debug, Clone)]
pub enum Followed<K> {
    /// The new state of an object; `None` if it was deleted.
    Object(Key, Option<Arc<K>>),
    /// The list is complete. Deletions that fell into a gap are in it.
    Listed,
}

/// Follows all objects of a kind until `shutdown`, or until the receiver is dropped. A value that cannot be decoded counts as
/// deleted.
pub fn follow<K: Object>(
    client: Client,
    shutdown: CancellationToken,
) -> mpsc::Receiver<Vec<Followed<K>>> {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let mut follower = Follower {
        client,
        known: HashSet::new(),
        sender,
    };
    tokio::spawn(shutdown.run_until_cancelled_owned(async move {
        while !follower.sender.is_closed() {
            if let Err(error) = follower.run().await {
                tracing::warn!(kind = K::PLURAL, error = %chain(&error), "a watch of the store failed, listing again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }));
    receiver
}

struct Follower<K> {
    client: Client,
    /// The objects that exist.
    known: HashSet<Key>,
    sender: mpsc::Sender<Vec<Followed<K>>>,
}

impl<K: Object> Follower<K> {
    /// Lists and watches, until the watch fails or the receiver is dropped.
    async fn run(&mut self) -> Result<(), ClientError> {
        let list = self.client.list::<K>(None).await?;
        let revision = list.revision;
        let objects = list.items.into_iter().map(|one| (one.key(), one));
        let listed: Vec<(Key, K)> = objects.collect();
        let names: HashSet<Key> = listed.iter().map(|(key, _)| key.clone()).collect();
        let gone = self.known.difference(&names);
        let gone = gone.map(|key| Followed::Object(key.clone(), None));
        let found = listed.into_iter();
        let found = found.map(|(key, object)| Followed::Object(key, Some(Arc::new(object))));
        let batch = gone.chain(found).chain([Followed::Listed]).collect();
        self.known = names;
        if self.sender.send(batch).await.is_err() {
            return Ok(());
        }
        self.watch(revision).await
    }

    async fn watch(&mut self, revision: u64) -> Result<(), ClientError> {
        let range = KeyRange::of_prefix(K::PREFIX);
        let watch = self
            .client
            .watch(&range, revision, Previous::LeftOut)
            .await?;
        let mut watch = pin!(watch);
        while let Some(events) = watch.next().await {
            let changes = events?.into_iter().filter_map(|event| {
                let key = K::parse_path(&event.path)?;
                let value = event.value.as_deref();
                let decoded =
                    value.map(|value| decode_bytes::<K>(&event.path, value, event.revision));
                let object = decoded.and_then(|decoded| {
                    let warned = decoded.inspect_err(|error| {
                        tracing::warn!(error = %chain(error), "ignored a malformed object");
                    });
                    warned.ok().map(Arc::new)
                });
                Some((key, object))
            });
            let mut batch = Vec::new();
            for (key, object) in changes {
                if object.is_some() {
                    self.known.insert(key.clone());
                } else {
                    self.known.remove(&key);
                }
                batch.push(Followed::Object(key, object));
            }
            if !batch.is_empty() && self.sender.send(batch).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}
