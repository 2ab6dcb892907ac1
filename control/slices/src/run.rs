//! The loop: lists the cluster, follows its changes, and writes slices.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::time::Duration;

use dormouse_cluster::client::{KeyRange, Previous, WatchEvent, decode_bytes};
use dormouse_cluster::{Client, ClientError, Guard, Key, Object, random_uid};
use futures::{FutureExt, Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::plan::Action;
use crate::state::State;

/// Writes at a time.
const WRITES_MAX: usize = 32;
/// Batches of changes that are taken together, so that a slice is written once for them.
const BATCHES_MAX: usize = 64;
/// First and longest pause after a failure of the store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Writes the slices of all Services until `shutdown`, or until the client's fence refuses: then another control plane writes them.
pub async fn run(client: Client, shutdown: CancellationToken) {
    let writing = shutdown.run_until_cancelled(Box::pin(keep_writing(&client)));
    writing.await;
}

async fn keep_writing(client: &Client) {
    let (first, longest) = BACKOFF;
    let mut pause = first;
    loop {
        let mut follower = Follower::default();
        match follower.work(client).await {
            Ok(()) => tracing::debug!("the watch for EndpointSlices has ended, listing again"),
            Err(ClientError::Fenced { .. }) => return,
            Err(error) => {
                tracing::warn!(%error, "EndpointSlices are not kept up, listing again");
            }
        }
        // A list alone proves nothing: each list of a store that refuses writes costs as much as the one before.
        if follower.has_written {
            pause = first;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// The next batches of a watch, those that are there already, at most [`BATCHES_MAX`]; none: the watch has ended.
async fn batches<T>(
    watch: &mut (impl Stream<Item = Result<T, ClientError>> + Unpin),
) -> Result<Option<Vec<T>>, ClientError> {
    let Some(first) = watch.next().await else {
        return Ok(None);
    };
    let mut batches = vec![first?];
    while batches.len() < BATCHES_MAX {
        match watch.next().now_or_never() {
            Some(Some(more)) => batches.push(more?),
            Some(None) | None => break,
        }
    }
    Ok(Some(batches))
}

/// The state at a revision of the store.
#[derive(Default)]
struct Follower {
    state: State,
    revision: u64,
    /// Services whose slices were written at a revision that the watch has not reached yet.
    awaited: HashMap<Key, u64>,
    /// All writes after the list have succeeded.
    has_written: bool,
}

impl Follower {
    /// Lists, writes, and follows the changes, until the watch ends or something fails.
    async fn work(&mut self, client: &Client) -> Result<(), ClientError> {
        self.list(client).await?;
        // One watch delivers all kinds in the order of revisions; other kinds lie between.
        let range = KeyRange::of_prefixes(EndpointSlice::PREFIX, Service::PREFIX);
        let watch = client
            .watch(&range, self.revision, Previous::LeftOut)
            .await?;
        let mut watch = pin!(watch);
        loop {
            self.write(client).await?;
            self.has_written = true;
            let Some(batches) = batches(&mut watch).await? else {
                return Ok(());
            };
            for events in &batches {
                self.take(events);
            }
        }
    }

    /// Reads all objects at one revision.
    async fn list(&mut self, client: &Client) -> Result<(), ClientError> {
        for prefix in [
            Node::PREFIX,
            Pod::PREFIX,
            Service::PREFIX,
            EndpointSlice::PREFIX,
        ] {
            let mut rest = Some(KeyRange::of_prefix(prefix));
            while let Some(range) = rest {
                let page = client.page(&range, self.revision).await?;
                self.revision = page.revision;
                for kv in &page.kvs {
                    let written = u64::try_from(kv.mod_revision()).unwrap_or(0);
                    apply(&mut self.state, kv.key(), Some(kv.value()), written);
                }
                rest = page.rest;
            }
        }
        Ok(())
    }

    fn take(&mut self, events: &[WatchEvent]) {
        for event in events {
            apply(
                &mut self.state,
                &event.path,
                event.value.as_deref(),
                event.revision,
            );
            self.revision = self.revision.max(event.revision);
        }
    }

    /// Writes the slices of all Services that changed and whose earlier writes are known.
    async fn write(&mut self, client: &Client) -> Result<(), ClientError> {
        let revision = self.revision;
        self.awaited.retain(|_, awaited| *awaited > revision);
        let dirty = self.state.take_dirty();
        let (late, dirty): (BTreeSet<Key>, BTreeSet<Key>) = dirty
            .into_iter()
            .partition(|key| self.awaited.contains_key(key));
        self.state.put_back(late);
        let actions = dirty.iter().flat_map(|key| {
            let actions = self.state.plan(key);
            actions
                .into_iter()
                .map(|action| (key.clone(), action))
                .collect::<Vec<_>>()
        });
        let actions: Vec<(Key, Action)> = actions.collect();
        let writes = actions.into_iter().map(|(key, action)| async move {
            let written = write(client, &key, action).await;
            (key, written)
        });
        let mut writes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        let mut failed = None;
        while let Some((key, written)) = writes.next().await {
            match written {
                Ok(at) => {
                    let awaited = self.awaited.entry(key).or_default();
                    *awaited = at.max(*awaited);
                }
                // A user has written the slice: the change is on its way.
                Err(
                    ClientError::Conflict { .. }
                    | ClientError::NotFound { .. }
                    | ClientError::AlreadyExists { .. },
                ) => {
                    self.awaited.entry(key.clone()).or_insert(revision + 1);
                    self.state.put_back([key]);
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Takes the new value of a key.
fn apply(state: &mut State, path: &[u8], value: Option<&[u8]>, revision: u64) {
    if let Some(key) = Pod::parse_path(path) {
        state.pod(key, decode(path, value, revision).as_ref());
    } else if let Some(key) = EndpointSlice::parse_path(path) {
        state.slice(&key, decode(path, value, revision));
    } else if let Some(key) = Service::parse_path(path) {
        state.service(key, decode(path, value, revision).as_ref());
    } else if let Some(key) = Node::parse_path(path) {
        state.node(&key.name, decode(path, value, revision).as_ref());
    }
}

/// An object; none: it is deleted, or was written past the API and cannot be read.
fn decode<K: Object>(path: &[u8], value: Option<&[u8]>, revision: u64) -> Option<K> {
    let decoded = decode_bytes(path, value?, revision);
    decoded
        .inspect_err(|error| tracing::warn!(%error, "ignored a malformed object"))
        .ok()
}

/// Writes one slice of a Service; returns the revision.
async fn write(client: &Client, service: &Key, action: Action) -> Result<u64, ClientError> {
    match action {
        Action::Create(mut slice) => {
            let meta = &mut slice.metadata;
            // A name has at most 253 characters, a Service's 63.
            meta.name = Some(format!("{}-{:08x}", service.name, fastrand::u32(..)));
            meta.generate_name = Some(format!("{}-", service.name));
            meta.namespace = Some(service.namespace.clone());
            meta.uid = random_uid().ok();
            meta.creation_timestamp = Some(Time(whole_seconds()));
            client.insert(&slice).await
        }
        Action::Update(slice) => {
            let guard = Guard::at(slice.revision());
            let written = client.update(slice, &guard).await?;
            Ok(written.revision())
        }
        Action::Delete(slice) => {
            let guard = Guard::at(slice.revision());
            client.delete::<EndpointSlice>(&slice.key(), &guard).await
        }
    }
}

fn whole_seconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
