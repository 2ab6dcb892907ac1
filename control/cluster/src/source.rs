//! Keeps a view current from the store: lists once, then follows every change, whatever breaks.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    App, Change, Client, ClientError, Key, Object, View,
    client::{RawEvent, chain, decode_bytes},
};

/// Batches that may wait for a slow reader before the watch itself waits.
const BATCHES_MAX: usize = 64;
/// Pause before a broken watch is tried again; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest pause between two tries.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// One watch over all kinds keeps the changes of different kinds in the store's own order.
const WATCHED: &str = "/registry/";

/// Changes in the store's order, each with its revision. A batch never splits a revision.
pub type Batch = Vec<(u64, Change)>;

/// The view now, and every change after it, until `shutdown`.
///
/// A lost connection is made again without a gap; when the missed changes are no longer kept, the
/// differences are found by listing again and arrive as ordinary changes. When the store has lost what was
/// read, the changes end: revisions would mean something else from there on.
pub async fn store(
    client: Client,
    shutdown: CancellationToken,
) -> Result<(View, mpsc::Receiver<Batch>), ClientError> {
    let view = list(&client).await?;
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let follower = Follower {
        client,
        view: view.clone(),
        sender,
    };
    tokio::spawn(async move { shutdown.run_until_cancelled(Box::pin(follower.run())).await });
    Ok((view, receiver))
}

/// Reads the whole cluster at one revision.
pub async fn list(client: &Client) -> Result<View, ClientError> {
    let (kvs, revision) = client.range(Node::PREFIX, 0).await?;
    let mut view = View::default();
    let apps = client.range(App::PREFIX, revision).await?.0;
    let pods = client.range(Pod::PREFIX, revision).await?.0;
    for kv in kvs.iter().chain(&apps).chain(&pods) {
        let written = u64::try_from(kv.mod_revision()).unwrap_or(0);
        if let Some(change) = change(kv.key(), Some(kv.value()), written) {
            view.apply(revision, &change);
        }
    }
    view.revision = revision;
    Ok(view)
}

struct Follower {
    client: Client,
    view: View,
    sender: mpsc::Sender<Batch>,
}

impl Follower {
    async fn run(mut self) {
        let mut pause = RETRY_MIN;
        while !self.sender.is_closed() {
            let before = self.view.revision;
            match self.follow().await {
                Ok(()) => return,
                Err(ClientError::Compacted { .. }) => self.resync().await,
                Err(error @ ClientError::WentBack { .. }) => {
                    tracing::error!(error = %chain(&error), "the cluster is followed no longer");
                    return;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "watch of the store broken, trying again");
                }
            }
            pause = if self.view.revision > before {
                RETRY_MIN
            } else {
                (pause * 2).min(RETRY_MAX)
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Follows one watch until it breaks; `Ok` when nobody reads any more.
    async fn follow(&mut self) -> Result<(), ClientError> {
        let mut watch = pin!(self.client.watch_raw(WATCHED, self.view.revision).await?);
        while let Some(events) = watch.next().await {
            let events = events?;
            let batch: Batch = events.iter().filter_map(read).collect();
            for (revision, change) in &batch {
                self.view.apply(*revision, change);
            }
            self.view.revision = events
                .last()
                .map_or(self.view.revision, |event| event.revision);
            if !batch.is_empty() && self.sender.send(batch).await.is_err() {
                return Ok(());
            }
        }
        Err(ClientError::Silent {
            after: Duration::ZERO,
        })
    }

    /// Finds what was missed by listing again.
    async fn resync(&mut self) {
        match list(&self.client).await {
            Ok(newer) => {
                let changes = self.view.changes_to(&newer);
                let batch: Batch = changes
                    .into_iter()
                    .map(|change| (newer.revision, change))
                    .collect();
                self.view = newer;
                if !batch.is_empty() {
                    // A closed channel is noticed by `run`.
                    drop(self.sender.send(batch).await);
                }
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot list the store again"),
        }
    }
}

fn read(event: &RawEvent) -> Option<(u64, Change)> {
    Some((
        event.revision,
        change(&event.path, event.value.as_deref(), event.revision)?,
    ))
}

/// What a key's new value means for the view; `None` for keys that it does not show.
fn change(path: &[u8], value: Option<&[u8]>, revision: u64) -> Option<Change> {
    typed(path, value, revision, Change::Pod)
        .or_else(|| typed(path, value, revision, Change::App))
        .or_else(|| typed(path, value, revision, Change::Node))
}

/// An unreadable value counts as absent: whoever wrote it past the API gets no pods for it.
fn typed<K: Object>(
    path: &[u8],
    value: Option<&[u8]>,
    revision: u64,
    change: fn(Key, Option<Arc<K>>) -> Change,
) -> Option<Change> {
    let key = K::parse_path(path)?;
    let object = value.and_then(|value| {
        decode_bytes(path, value, revision)
            .inspect_err(|error| tracing::warn!(error = %chain(error), "unreadable object ignored"))
            .ok()
    });
    Some(change(key, object.map(Arc::new)))
}
