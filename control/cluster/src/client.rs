//! Typed reading and writing of the store over the etcd v3 API, whoever serves it.

mod error;
mod raw;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnResponse};
use futures::{Stream, StreamExt};
use tokio::time::{Duration, timeout};

use crate::{Key, Object};
pub use error::ClientError;
pub use raw::RawEvent;

/// A store that does not answer a single request for this long counts as unreachable.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Objects asked for at once when a list is read in pages.
const PAGE_LEN: i64 = 1_000;
/// Most bytes of one reply: a full page of the largest objects (1.5 MiB each) never comes near.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// A write that keeps losing against other writers is given up after this many rounds.
const MODIFY_ROUNDS_MAX: u32 = 16;

/// A connection to the store; clones share it.
#[derive(Clone)]
pub struct Client {
    kv: etcd_client::KvClient,
    watch: etcd_client::WatchClient,
    lease: etcd_client::LeaseClient,
}

/// A list, and the revision of the store at which it was true.
#[derive(Debug, Clone)]
pub struct List<K> {
    /// Objects in the order of their keys.
    pub items: Vec<K>,
    /// The store's revision at which all of `items` were read.
    pub revision: u64,
}

/// What must hold for a write to happen.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// The object must have been written last at this revision.
    pub revision: Option<u64>,
    /// What must hold of other keys.
    pub compares: Vec<Compare>,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub enum Watched<K> {
    /// The object was created.
    Created(K),
    /// The object was replaced.
    Updated(K),
    /// The object is gone: its last state, with the revision of its removal.
    Deleted(K),
}

impl Guard {
    /// Holds when the object was written last at `revision`.
    pub fn at(revision: u64) -> Self {
        Self {
            revision: Some(revision),
            compares: Vec::new(),
        }
    }

    /// Holds when `self` does and `compare` does.
    #[must_use]
    pub fn and(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// The conditions under which the object at `path` may be written.
    fn conditions(&self, path: &str) -> Vec<Compare> {
        let mut all = self.compares.clone();
        all.push(match self.revision {
            Some(revision) => Compare::mod_revision(path, CompareOp::Equal, signed(revision)),
            None => Compare::create_revision(path, CompareOp::Greater, 0),
        });
        all
    }
}

impl Client {
    /// A client of the store at `endpoint` (`http://[::1]:2379`). It connects when first used, and again
    /// whenever the connection is lost.
    pub async fn connect(endpoint: &str) -> Result<Self, ClientError> {
        let client = etcd_client::Client::connect([endpoint], None)
            .await
            .map_err(ClientError::from)?;
        Ok(Self {
            kv: client
                .kv_client()
                .max_decoding_message_size(REPLY_BYTES_MAX),
            watch: client
                .watch_client()
                .max_decoding_message_size(REPLY_BYTES_MAX),
            lease: client.lease_client(),
        })
    }

    /// Reads one object; `None` when it does not exist.
    pub async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, ClientError> {
        let path = K::path(key);
        let mut kv = self.kv.clone();
        let reply = answered(kv.get(path, None)).await?;
        reply.kvs().first().map(decode).transpose()
    }

    /// Reads all objects of a kind, or those of one namespace, at one revision. A value that is no such
    /// object is skipped with a warning: one bad key hides no other.
    pub async fn list<K: Object>(&self, namespace: Option<&str>) -> Result<List<K>, ClientError> {
        let prefix = prefix_of::<K>(namespace);
        let (kvs, revision) = self.range(&prefix, 0).await?;
        Ok(List {
            items: kvs.iter().filter_map(decode_or_warn).collect(),
            revision,
        })
    }

    /// Creates an object that must not exist yet.
    pub async fn create<K: Object>(&self, object: &K) -> Result<K, ClientError> {
        let path = K::path(&object.key());
        let txn = Txn::new()
            .when([Compare::create_revision(path.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(path.as_str(), encode(object)?, None)]);
        let reply = self.txn(txn).await?;
        if !reply.succeeded() {
            return Err(ClientError::AlreadyExists { path });
        }
        Ok(stamped(object.clone(), revision_of(&reply)))
    }

    /// Replaces an object that must exist, if `guard` holds.
    pub async fn update<K: Object>(&self, object: &K, guard: &Guard) -> Result<K, ClientError> {
        let path = K::path(&object.key());
        let put = TxnOp::put(path.as_str(), encode(object)?, None);
        let revision = self.guarded(&path, guard, put).await?;
        Ok(stamped(object.clone(), revision))
    }

    /// Removes an object that must exist, if `guard` holds; returns the revision of its removal.
    pub async fn delete<K: Object>(&self, key: &Key, guard: &Guard) -> Result<u64, ClientError> {
        let path = K::path(key);
        let delete = TxnOp::delete(path.as_str(), None);
        self.guarded(&path, guard, delete).await
    }

    /// Reads, changes and writes an object until no other writer came between. `change` returns whether it
    /// changed anything; nothing is written when it did not.
    pub async fn modify<K: Object>(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut K) -> bool + Send,
    ) -> Result<K, ClientError> {
        for _ in 0..MODIFY_ROUNDS_MAX {
            let found: Option<K> = self.get(key).await?;
            let mut object = found.ok_or_else(|| ClientError::NotFound { path: K::path(key) })?;
            if !change(&mut object) {
                return Ok(object);
            }
            match self.update(&object, &Guard::at(object.revision())).await {
                Err(ClientError::Conflict { .. }) => {}
                other => return other,
            }
        }
        Err(ClientError::Conflict { path: K::path(key) })
    }

    /// Runs a transaction of the caller's own making.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResponse, ClientError> {
        let mut kv = self.kv.clone();
        answered(kv.txn(txn)).await
    }

    /// Reads every key under `prefix` at `revision` (0: now), with the revision that was read.
    pub async fn range(
        &self,
        prefix: &str,
        revision: u64,
    ) -> Result<(Vec<KeyValue>, u64), ClientError> {
        let (mut from, mut revision) = (prefix.as_bytes().to_vec(), revision);
        let mut all = Vec::new();
        loop {
            let options = GetOptions::new()
                .with_range(prefix_end(prefix))
                .with_limit(PAGE_LEN)
                .with_revision(signed(revision));
            let mut kv = self.kv.clone();
            let mut reply = answered(kv.get(from.clone(), Some(options))).await?;
            if revision == 0 {
                revision = unsigned(
                    reply
                        .header()
                        .map_or(0, etcd_client::ResponseHeader::revision),
                );
            }
            all.append(&mut reply.take_kvs());
            let Some(last) = all.last().filter(|_| reply.more()) else {
                return Ok((all, revision));
            };
            from = last.key().to_vec();
            from.push(0);
        }
    }

    /// Every change of a kind (or of one namespace of it) after `revision`, in order.
    ///
    /// The stream ends when the connection does; [`ClientError::Compacted`] means that the changes are no
    /// longer known and that the caller must list again.
    pub async fn watch<K: Object>(
        &self,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<impl Stream<Item = Result<Vec<Watched<K>>, ClientError>> + Send + use<K>, ClientError>
    {
        let events = self.watch_raw(&prefix_of::<K>(namespace), revision).await?;
        Ok(events.map(|batch| Ok(batch?.iter().filter_map(watched).collect())))
    }

    /// Every change of the keys under `prefix` after `revision`, in order, a batch never splitting a
    /// revision.
    pub async fn watch_raw(
        &self,
        prefix: &str,
        revision: u64,
    ) -> Result<impl Stream<Item = Result<Vec<RawEvent>, ClientError>> + Send + use<>, ClientError>
    {
        raw::watch(self.watch.clone(), prefix, revision).await
    }

    /// Writes an object, whether it exists or not, that vanishes by itself after `seconds`.
    pub(crate) async fn put_leased<K: Object>(
        &self,
        object: &K,
        seconds: i64,
    ) -> Result<(), ClientError> {
        let (mut lease, mut kv) = (self.lease.clone(), self.kv.clone());
        let granted = answered(lease.grant(seconds, None)).await?;
        let options = PutOptions::new().with_lease(granted.id());
        answered(kv.put(K::path(&object.key()), encode(object)?, Some(options))).await?;
        Ok(())
    }

    /// Runs `op` on `path` if `guard` holds; returns the new revision.
    async fn guarded(&self, path: &str, guard: &Guard, op: TxnOp) -> Result<u64, ClientError> {
        let txn = Txn::new()
            .when(guard.conditions(path))
            .and_then([op])
            .or_else([TxnOp::get(path, None)]);
        let reply = self.txn(txn).await?;
        if reply.succeeded() {
            return Ok(revision_of(&reply));
        }
        let path = path.to_owned();
        Err(match reply.op_responses().first() {
            Some(etcd_client::TxnOpResponse::Get(found)) if found.kvs().is_empty() => {
                ClientError::NotFound { path }
            }
            _ => ClientError::Conflict { path },
        })
    }
}

/// The object in a key's value, with its revision.
pub fn decode<K: Object>(kv: &KeyValue) -> Result<K, ClientError> {
    decode_bytes(kv.key(), kv.value(), unsigned(kv.mod_revision()))
}

/// An object as it is stored.
pub fn encode<K: Object>(object: &K) -> Result<Vec<u8>, ClientError> {
    let mut stored = object.clone();
    stored.meta_mut().resource_version = None;
    serde_json::to_vec(&stored).map_err(|source| ClientError::Malformed {
        path: K::path(&object.key()),
        source,
    })
}

pub(crate) fn decode_bytes<K: Object>(
    path: &[u8],
    value: &[u8],
    revision: u64,
) -> Result<K, ClientError> {
    let malformed = |source| ClientError::Malformed {
        path: String::from_utf8_lossy(path).into_owned(),
        source,
    };
    let object: K = serde_json::from_slice(value).map_err(malformed)?;
    Ok(stamped(object, revision))
}

fn decode_or_warn<K: Object>(kv: &KeyValue) -> Option<K> {
    decode(kv)
        .inspect_err(|error| tracing::warn!(error = %chain(error), "unreadable object skipped"))
        .ok()
}

fn watched<K: Object>(event: &RawEvent) -> Option<Watched<K>> {
    K::parse_path(&event.path)?;
    let bytes = event.value.as_deref().or(event.previous.as_deref())?;
    let object = decode_bytes(&event.path, bytes, event.revision)
        .inspect_err(|error| tracing::warn!(error = %chain(error), "unreadable object skipped"))
        .ok()?;
    Some(match (&event.value, event.created) {
        (None, _) => Watched::Deleted(object),
        (Some(_), true) => Watched::Created(object),
        (Some(_), false) => Watched::Updated(object),
    })
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn stamped<K: Object>(mut object: K, revision: u64) -> K {
    object.meta_mut().resource_version = Some(revision.to_string());
    object
}

fn prefix_of<K: Object>(namespace: Option<&str>) -> String {
    match namespace.filter(|_| K::NAMESPACED) {
        Some(namespace) => format!("{}{namespace}/", K::PREFIX),
        None => K::PREFIX.to_owned(),
    }
}

/// The first key after all those that start with `prefix`, which must end with an ASCII character.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// The revision at which a transaction was carried out.
pub fn revision_of(reply: &TxnResponse) -> u64 {
    unsigned(
        reply
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision),
    )
}

/// Revisions are never negative; etcd's messages carry them as signed numbers.
fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Waits for the store's answer, but not for ever.
async fn answered<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, ClientError> {
    match timeout(REQUEST_TIMEOUT, call).await {
        Ok(reply) => reply.map_err(ClientError::from),
        Err(_elapsed) => Err(ClientError::Silent {
            after: REQUEST_TIMEOUT,
        }),
    }
}
