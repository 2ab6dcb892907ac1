//! The reflector: lists the cluster's objects, then watches them, and resumes the watch after errors. It keeps the names
//! of pods and nodes, and nothing of apps.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::mpsc::{self, error::SendError};
use tokio_util::sync::CancellationToken;

use crate::{
    App, Change, Client, ClientError, Key, Object,
    app::StoredApp,
    client::{KeyRange, Previous, WatchEvent, chain, decode_bytes},
};

/// Batches queued for the receiver; a full queue blocks the watch.
const BATCHES_MAX: usize = 16;
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

    /// The listed prefixes: nodes, then apps, then the pods of both.
    fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::All => &[Node::PREFIX, App::PREFIX, Pod::PREFIX],
            Self::PodsAndNodes => &[Node::PREFIX, Pod::PREFIX],
        }
    }
}

/// Lists the objects of `kinds` and watches them until `shutdown`.
///
/// The changes begin with a list, from [`Change::Listing`] to [`Change::Listed`], which arrives in pages: the next one is
/// read when the receiver has taken the previous. A lost connection is re-established without a gap. If the revision to
/// resume from is compacted, or a list fails, another list follows. The changes end when the store's revision went back:
/// revisions before and after that cannot be compared.
pub fn start(client: Client, kinds: Kinds, shutdown: CancellationToken) -> mpsc::Receiver<Batch> {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    Reflector::new(client, kinds, sender).spawn(shutdown);
    receiver
}

/// As [`start`], for two receivers: of all kinds, and of pods and nodes. Each object is read and decoded once; the slower
/// receiver sets the pace of both.
pub fn start_shared(
    client: Client,
    shutdown: CancellationToken,
) -> (mpsc::Receiver<Batch>, mpsc::Receiver<Batch>) {
    let (sender, all) = mpsc::channel(BATCHES_MAX);
    let (second, pods_and_nodes) = mpsc::channel(BATCHES_MAX);
    let reflector = Reflector {
        pods_and_nodes: Some(second),
        ..Reflector::new(client, Kinds::All, sender)
    };
    reflector.spawn(shutdown);
    (all, pods_and_nodes)
}

/// The names of the existing pods and nodes.
#[derive(Debug, Default)]
struct Names {
    pods: HashSet<Key>,
    nodes: HashSet<Key>,
}

impl Names {
    fn apply(&mut self, change: &Change) {
        let (names, key, exists) = match change {
            Change::Pod(key, pod) => (&mut self.pods, key, pod.is_some()),
            Change::Node(key, node) => (&mut self.nodes, key, node.is_some()),
            Change::App(..) | Change::Listing | Change::Listed => return,
        };
        if !exists {
            names.remove(key);
        } else if !names.contains(key) {
            names.insert(key.clone());
        }
    }

    /// The deletions of those that are not in `newer`.
    fn deletions(&self, newer: &Self) -> Vec<Change> {
        let pods = self.pods.difference(&newer.pods);
        let nodes = self.nodes.difference(&newer.nodes);
        pods.map(|key| Change::Pod(key.clone(), None))
            .chain(nodes.map(|key| Change::Node(key.clone(), None)))
            .collect()
    }
}

/// Why a list or a watch ended.
enum End {
    /// A receiver is dropped, or the store's revision went back.
    Final,
    Failed(ClientError),
}

impl<T> From<SendError<T>> for End {
    fn from(_closed: SendError<T>) -> Self {
        Self::Final
    }
}

impl From<ClientError> for End {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

struct Reflector {
    client: Client,
    kinds: Kinds,
    known: Names,
    /// The revision after which the watch is resumed; 0: a list comes first.
    revision: u64,
    sender: mpsc::Sender<Batch>,
    /// A second receiver, which gets no apps.
    pods_and_nodes: Option<mpsc::Sender<Batch>>,
}

impl Reflector {
    fn new(client: Client, kinds: Kinds, sender: mpsc::Sender<Batch>) -> Self {
        Self {
            client,
            kinds,
            known: Names::default(),
            revision: 0,
            sender,
            pods_and_nodes: None,
        }
    }

    fn spawn(self, shutdown: CancellationToken) {
        tokio::spawn(async move { shutdown.run_until_cancelled(Box::pin(self.run())).await });
    }

    async fn run(mut self) {
        let mut backoff = BACKOFF_MIN;
        loop {
            let before = self.revision;
            let end = if before == 0 {
                self.list().await
            } else {
                self.watch().await
            };
            let error = match end {
                Ok(()) => continue,
                Err(End::Final) => return,
                Err(End::Failed(error)) => error,
            };
            match error {
                ClientError::Compacted { .. } => self.revision = 0,
                ClientError::RevisionRegressed { .. } => {
                    tracing::error!(error = %chain(&error), "the watch of the store ended");
                    return;
                }
                error => {
                    tracing::warn!(error = %chain(&error), "the watch of the store failed, resuming it");
                }
            }
            backoff = if self.revision > before {
                BACKOFF_MIN
            } else {
                (backoff * 2).min(BACKOFF_MAX)
            };
            tokio::time::sleep(backoff).await;
        }
    }

    /// Lists all objects at one revision, page by page.
    async fn list(&mut self) -> Result<(), End> {
        self.send_page(vec![(0, Change::Listing)]).await?;
        let (mut listed, mut revision) = (Names::default(), 0);
        for prefix in self.kinds.prefixes() {
            let range = KeyRange::of_prefix(prefix);
            let mut from = Some(range.clone());
            while let Some(rest) = from {
                let page = self.client.page(&rest, revision).await?;
                revision = page.revision;
                let read = page.kvs.into_iter().filter_map(|kv| {
                    let written = u64::try_from(kv.mod_revision()).unwrap_or(0);
                    let (key, value) = kv.into_key_value();
                    change(&key, Some(value), written)
                });
                let batch: Batch = read.map(|change| (revision, change)).collect();
                for (_, change) in &batch {
                    listed.apply(change);
                }
                self.send_page(batch).await?;
                from = page.rest;
            }
        }
        let deletions = self.known.deletions(&listed).into_iter();
        let end = deletions.chain([Change::Listed]);
        self.send_page(end.map(|change| (revision, change)).collect())
            .await?;
        (self.known, self.revision) = (listed, revision);
        Ok(())
    }

    /// Runs one watch until it fails.
    async fn watch(&mut self) -> Result<(), End> {
        let range = self.kinds.range();
        let after = self.revision;
        let mut watch = pin!(self.client.watch(&range, after, Previous::LeftOut).await?);
        while let Some(events) = watch.next().await {
            let events = events?;
            let last = events.last().map_or(self.revision, |event| event.revision);
            let batch: Batch = events.into_iter().filter_map(decode).collect();
            for (_, change) in &batch {
                self.known.apply(change);
            }
            self.revision = last;
            self.send(batch).await?;
        }
        Err(End::Failed(ClientError::Timeout {
            after: Duration::ZERO,
        }))
    }

    /// Sends a page when the receivers have taken all before it, so that one page is in memory.
    async fn send_page(&self, page: Batch) -> Result<(), End> {
        for sender in self.senders() {
            drop(sender.reserve_many(BATCHES_MAX).await?);
        }
        self.send(page).await
    }

    /// Sends a batch, unless it is empty.
    async fn send(&self, batch: Batch) -> Result<(), End> {
        if let Some(second) = &self.pods_and_nodes {
            let apps = |change: &Change| matches!(change, Change::App(..));
            let part = batch.iter().filter(|(_, change)| !apps(change));
            let part: Batch = part.cloned().collect();
            if !part.is_empty() {
                second.send(part).await?;
            }
        }
        if !batch.is_empty() {
            self.sender.send(batch).await?;
        }
        if self.senders().any(mpsc::Sender::is_closed) {
            return Err(End::Final);
        }
        Ok(())
    }

    fn senders(&self) -> impl Iterator<Item = &mpsc::Sender<Batch>> {
        self.pods_and_nodes.iter().chain([&self.sender])
    }
}

fn decode(event: WatchEvent) -> Option<(u64, Change)> {
    Some((
        event.revision,
        change(&event.path, event.value, event.revision)?,
    ))
}

/// The change by a key's new value; `None` for keys of other kinds. A value that cannot be decoded is treated as a
/// deletion. Only writes that bypass the API cause one.
fn change(path: &[u8], value: Option<Vec<u8>>, revision: u64) -> Option<Change> {
    if let Some(key) = App::parse_path(path) {
        let app = value.map(|value| {
            StoredApp::decode(value, revision).map_err(|source| ClientError::Malformed {
                path: String::from_utf8_lossy(path).into_owned(),
                source,
            })
        });
        return Some(Change::App(key, app.and_then(known).map(Box::new)));
    }
    let value = value.as_deref();
    typed(path, value, revision, Change::Pod).or_else(|| typed(path, value, revision, Change::Node))
}

fn typed<K: Object>(
    path: &[u8],
    value: Option<&[u8]>,
    revision: u64,
    change: fn(Key, Option<Arc<K>>) -> Change,
) -> Option<Change> {
    let key = K::parse_path(path)?;
    let object = value.and_then(|value| known(decode_bytes(path, value, revision)));
    Some(change(key, object.map(Arc::new)))
}

fn known<T>(decoded: Result<T, ClientError>) -> Option<T> {
    decoded
        .inspect_err(|error| tracing::warn!(error = %chain(error), "ignored a malformed object"))
        .ok()
}
