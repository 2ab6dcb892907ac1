//! The reflector: lists the cluster's objects, then watches them, and resumes the watch after errors.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    App, Change, Client, ClientError, Key, Object, View,
    client::{KeyRange, Previous, WatchEvent, chain, decode_bytes},
};

/// Batches queued for the receiver; a full queue blocks the watch.
const BATCHES_MAX: usize = 64;
/// Initial backoff before a failed watch is resumed; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Maximum backoff.
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Changes in the order of revisions, each with its revision. A batch never splits a revision.
pub type Batch = Vec<(u64, Change)>;

/// The kinds of objects that a reflector lists and watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// Apps, pods and nodes.
    All,
    /// Pods and nodes.
    PodsAndNodes,
}

impl Kinds {
    /// The watched keys. One watch of all kinds delivers their changes in the order of revisions; it may deliver other
    /// kinds, whose keys lie between.
    fn range(self) -> KeyRange {
        let first = match self {
            Self::All => App::PREFIX,
            Self::PodsAndNodes => Node::PREFIX,
        };
        KeyRange::of_prefixes(first, Pod::PREFIX)
    }

    fn contains_apps(self) -> bool {
        self == Self::All
    }
}

/// Lists the objects of `kinds` and watches them until `shutdown`; returns the view and the changes after it.
///
/// A lost connection is re-established without a gap. If the revision to resume from is compacted, the
/// reflector lists again and sends the differences as changes. The changes end when the store's
/// revision went back: revisions before and after that cannot be compared.
pub async fn start(
    client: Client,
    kinds: Kinds,
    shutdown: CancellationToken,
) -> Result<(View, mpsc::Receiver<Batch>), ClientError> {
    let view = list(&client, kinds).await?;
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let reflector = Reflector {
        client,
        kinds,
        view: view.clone(),
        sender,
    };
    tokio::spawn(async move {
        shutdown
            .run_until_cancelled(Box::pin(reflector.run()))
            .await
    });
    Ok((view, receiver))
}

/// Lists the objects of `kinds` at one revision.
pub async fn list(client: &Client, kinds: Kinds) -> Result<View, ClientError> {
    let (kvs, revision) = client.range(Node::PREFIX, 0).await?;
    let mut view = View::default();
    let apps = if kinds.contains_apps() {
        client.range(App::PREFIX, revision).await?.0
    } else {
        Vec::new()
    };
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

struct Reflector {
    client: Client,
    kinds: Kinds,
    view: View,
    sender: mpsc::Sender<Batch>,
}

impl Reflector {
    async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        while !self.sender.is_closed() {
            let before = self.view.revision;
            match self.watch().await {
                Ok(()) => return,
                Err(ClientError::Compacted { .. }) => self.relist().await,
                Err(error @ ClientError::RevisionRegressed { .. }) => {
                    tracing::error!(error = %chain(&error), "the watch of the store ended");
                    return;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the watch of the store failed, resuming it");
                }
            }
            backoff = if self.view.revision > before {
                BACKOFF_MIN
            } else {
                (backoff * 2).min(BACKOFF_MAX)
            };
            tokio::time::sleep(backoff).await;
        }
    }

    /// Runs one watch until it fails; `Ok` when the receiver is dropped.
    async fn watch(&mut self) -> Result<(), ClientError> {
        let range = self.kinds.range();
        let after = self.view.revision;
        let mut watch = pin!(self.client.watch(&range, after, Previous::LeftOut).await?);
        while let Some(events) = watch.next().await {
            let events = events?;
            let batch: Batch = events.iter().filter_map(decode).collect();
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
        Err(ClientError::Timeout {
            after: Duration::ZERO,
        })
    }

    /// Lists again and sends the differences as changes.
    async fn relist(&mut self) {
        match list(&self.client, self.kinds).await {
            Ok(newer) => {
                let changes = self.view.changes_to(&newer);
                let batch: Batch = changes
                    .into_iter()
                    .map(|change| (newer.revision, change))
                    .collect();
                self.view = newer;
                if !batch.is_empty() {
                    // `run` checks whether the channel is closed.
                    drop(self.sender.send(batch).await);
                }
            }
            Err(error) => tracing::warn!(error = %chain(&error), "cannot list the store"),
        }
    }
}

fn decode(event: &WatchEvent) -> Option<(u64, Change)> {
    Some((
        event.revision,
        change(&event.path, event.value.as_deref(), event.revision)?,
    ))
}

/// The change of the view by a key's new value; `None` for keys of kinds that the view does not hold.
fn change(path: &[u8], value: Option<&[u8]>, revision: u64) -> Option<Change> {
    typed(path, value, revision, Change::Pod)
        .or_else(|| typed(path, value, revision, Change::App))
        .or_else(|| typed(path, value, revision, Change::Node))
}

/// A value that cannot be decoded is treated as a deletion. Only writes that bypass the API cause one.
fn typed<K: Object>(
    path: &[u8],
    value: Option<&[u8]>,
    revision: u64,
    change: fn(Key, Option<Arc<K>>) -> Change,
) -> Option<Change> {
    let key = K::parse_path(path)?;
    let object = value.and_then(|value| {
        decode_bytes(path, value, revision)
            .inspect_err(
                |error| tracing::warn!(error = %chain(error), "ignored a malformed object"),
            )
            .ok()
    });
    Some(change(key, object.map(Arc::new)))
}
