//! The typed client of the store, over the etcd v3 API.

mod batch;
mod codec;
mod error;
mod watch;
mod write;

use std::sync::Arc;

use etcd_client::{Compare, GetOptions, KeyValue, Txn, TxnOpResponse, TxnResponse};
use futures::{Stream, StreamExt};
use tokio::time::{Duration, timeout};
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService as CloneService};

use crate::{Channel, Key, Object, StoredApp};
use batch::{Answer, Batches, Operation};
use codec::decode_or_warn;
pub use codec::{chain, decode, decode_bytes, encode};
pub use error::ClientError;
use error::is_of_revision;
pub use watch::{Observed, WatchEvent};
pub use write::Guard;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Keys per page of a range read.
const PAGE_LEN: i64 = 1_000;
/// Maximum bytes of one response. A page of large objects may exceed gRPC's default of 4 MiB.
const REPLY_BYTES_MAX: usize = 256 << 20;

/// A client of the store; clones share its connection, and cost nothing.
#[derive(Clone)]
pub struct Client {
    services: Arc<Services>,
    /// A condition of all writes of objects.
    fence: Option<Arc<Compare>>,
}

/// The clients of the store's services.
struct Services {
    kv: etcd_client::KvClient,
    /// Reads of objects, which do not wait for the writes of others.
    reads: Batches,
    /// Writes of objects.
    writes: Batches,
    watch: etcd_client::WatchClient,
    lease: etcd_client::LeaseClient,
    maintenance: etcd_client::MaintenanceClient,
}

/// The keys from `start` on, below `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl KeyRange {
    /// The keys that begin with `prefix`, which must end with an ASCII character.
    pub fn of_prefix(prefix: &str) -> Self {
        Self::of_prefixes(prefix, prefix)
    }

    /// The keys from the first with the prefix `first` to the last with the prefix `last`, which must end with an ASCII
    /// character.
    pub fn of_prefixes(first: &str, last: &str) -> Self {
        Self {
            start: first.as_bytes().to_vec(),
            end: prefix_end(last),
        }
    }

    /// One key.
    pub fn of_key(key: &str) -> Self {
        Self {
            start: key.as_bytes().to_vec(),
            end: [key.as_bytes(), &[0]].concat(),
        }
    }

    /// The keys of the range after this one.
    #[must_use]
    pub fn after(self, key: &str) -> Self {
        let start = [key.as_bytes(), &[0]].concat().max(self.start);
        Self { start, ..self }
    }
}

/// The first keys of a range.
#[derive(Debug)]
pub struct Page {
    /// The keys, with their values.
    pub kvs: Vec<KeyValue>,
    /// The revision at which they were read.
    pub revision: u64,
    /// The keys after them, if there are more.
    pub rest: Option<KeyRange>,
}

/// Whether the events of a watch have the values from before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous {
    /// They have, unless these are compacted.
    Included,
    /// They have not, which halves their size.
    LeftOut,
}

/// The objects of a kind at one revision of the store.
#[derive(Debug, Clone)]
pub struct List<K> {
    /// The objects, in the order of their keys.
    pub items: Vec<K>,
    /// The store's revision at which they were read.
    pub revision: u64,
}

impl Client {
    /// A client of the store at `endpoint` (`http://[::1]:2379`). It connects on first use and
    /// reconnects when the connection is lost.
    pub async fn connect(endpoint: &str) -> Result<Self, ClientError> {
        let client = etcd_client::Client::connect([endpoint], None).await?;
        Ok(Self::of(&client))
    }

    /// A client of the store whose services a channel reaches.
    pub async fn over(channel: Channel) -> Result<Self, ClientError> {
        let channel =
            etcd_client::Channel::Custom(CloneService::new(channel.map_err(BoxError::from)));
        let client = etcd_client::Client::from_channel(channel, None).await?;
        Ok(Self::of(&client))
    }

    fn of(client: &etcd_client::Client) -> Self {
        let kv = client
            .kv_client()
            .max_decoding_message_size(REPLY_BYTES_MAX);
        let services = Services {
            reads: Batches::start(kv.clone()),
            writes: Batches::start(kv.clone()),
            kv,
            watch: client
                .watch_client()
                .max_decoding_message_size(REPLY_BYTES_MAX),
            lease: client.lease_client(),
            maintenance: client.maintenance_client(),
        };
        Self {
            services: Arc::new(services),
            fence: None,
        }
    }

    /// Reads one object; `None` when it does not exist.
    pub async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, ClientError> {
        let read = self.services.reads.run(Operation::read(K::path(key)));
        let answer = with_answer(read).await?;
        match answer.response {
            TxnOpResponse::Get(found) => found.kvs().first().map(decode).transpose(),
            _ => Ok(None),
        }
    }

    /// Lists all objects of a kind, or those of one namespace, at one revision. A value that cannot be
    /// decoded is skipped with a warning.
    pub async fn list<K: Object>(&self, namespace: Option<&str>) -> Result<List<K>, ClientError> {
        let prefix = prefix_of::<K>(namespace);
        let (kvs, revision) = self.range(&prefix, 0).await?;
        Ok(List {
            items: kvs.iter().filter_map(decode_or_warn).collect(),
            revision,
        })
    }

    /// The keys of `range`, without their values.
    pub(crate) async fn paths(&self, range: &KeyRange) -> Result<Vec<String>, ClientError> {
        let mut paths = Vec::new();
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let keys = GetOptions::new().with_keys_only();
            let page = self.page_of(&range, 0, keys).await?;
            let keys = page.kvs.iter().map(KeyValue::key);
            paths.extend(keys.map(|key| String::from_utf8_lossy(key).into_owned()));
            rest = page.rest;
        }
        Ok(paths)
    }

    /// Runs a transaction.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResponse, ClientError> {
        let mut kv = self.services.kv.clone();
        with_timeout(kv.txn(txn)).await
    }

    /// What the store's member reports to be wrong with it: alarms as etcd writes them (no space, a corrupt member), and the reason for
    /// which it cannot write.
    pub async fn faults(&self) -> Result<Vec<String>, ClientError> {
        let mut maintenance = self.services.maintenance.clone();
        let status = with_timeout(maintenance.status()).await?;
        Ok(status.errors().to_vec())
    }

    /// Reads all keys under `prefix` at `revision` (0: the current one); returns them with the revision.
    pub async fn range(
        &self,
        prefix: &str,
        revision: u64,
    ) -> Result<(Vec<KeyValue>, u64), ClientError> {
        self.pages(&KeyRange::of_prefix(prefix), revision).await
    }

    /// Reads all keys of `range`, as [`Client::range`] does.
    async fn pages(
        &self,
        range: &KeyRange,
        revision: u64,
    ) -> Result<(Vec<KeyValue>, u64), ClientError> {
        let mut page = self.page(range, revision).await?;
        let mut all = page.kvs;
        while let Some(rest) = page.rest {
            page = self.page(&rest, page.revision).await?;
            all.append(&mut page.kvs);
        }
        Ok((all, page.revision))
    }

    /// The first apps of `range`, decoded as far as sleeping ones need it, and the rest of the range. Malformed ones are left out: the
    /// reflector reports them.
    pub async fn stored_apps(
        &self,
        range: &KeyRange,
    ) -> Result<(Vec<StoredApp>, Option<KeyRange>), ClientError> {
        let page = self.page(range, 0).await?;
        let apps = page.kvs.into_iter().filter_map(|kv| {
            let revision = unsigned(kv.mod_revision());
            let (_, value) = kv.into_key_value();
            StoredApp::decode(value, revision).ok()
        });
        Ok((apps.collect(), page.rest))
    }

    /// Reads the first keys of `range` at `revision` (0: the current one).
    pub async fn page(&self, range: &KeyRange, revision: u64) -> Result<Page, ClientError> {
        self.page_of(range, revision, GetOptions::new()).await
    }

    async fn page_of(
        &self,
        range: &KeyRange,
        revision: u64,
        options: GetOptions,
    ) -> Result<Page, ClientError> {
        let options = options
            .with_range(range.end.clone())
            .with_limit(PAGE_LEN)
            .with_revision(signed(revision));
        let mut kv = self.services.kv.clone();
        let reply = with_timeout(kv.get(range.start.clone(), Some(options))).await;
        let mut reply = reply.map_err(|error| match error {
            error if is_of_revision(&error) => ClientError::NoSuchRevision { revision },
            error => error,
        })?;
        let header = reply.header();
        let current = header.map_or(0, etcd_client::ResponseHeader::revision);
        let kvs = reply.take_kvs();
        let rest = kvs.last().filter(|_| reply.more()).map(|last| KeyRange {
            start: [last.key(), &[0]].concat(),
            end: range.end.clone(),
        });
        Ok(Page {
            kvs,
            revision: if revision == 0 {
                unsigned(current)
            } else {
                revision
            },
            rest,
        })
    }

    /// Watches the keys of `range` after `revision`: batches of events in order; a batch never splits a revision.
    ///
    /// The stream ends with the connection. After [`ClientError::Compacted`] the caller must list again.
    pub async fn watch(
        &self,
        range: &KeyRange,
        revision: u64,
        previous: Previous,
    ) -> Result<impl Stream<Item = Result<Vec<WatchEvent>, ClientError>> + Send + use<>, ClientError>
    {
        let watch = self.services.watch.clone();
        let observed = watch::start(watch, range, revision, previous, None).await?;
        Ok(observed.filter_map(|observed| {
            std::future::ready(match observed {
                Ok(Observed::Events(events)) => Some(Ok(events)),
                Ok(Observed::Progress(_)) => None,
                Err(error) => Some(Err(error)),
            })
        }))
    }

    /// As [`Client::watch`], but asks the store in this interval up to which revision the events are complete.
    pub async fn watch_with_progress(
        &self,
        range: &KeyRange,
        revision: u64,
        previous: Previous,
        interval: Duration,
    ) -> Result<impl Stream<Item = Result<Observed, ClientError>> + Send + use<>, ClientError> {
        let watch = self.services.watch.clone();
        watch::start(watch, range, revision, previous, Some(interval)).await
    }
}

/// The prefix of the keys of a kind, in one namespace or in all.
pub fn prefix_of<K: Object>(namespace: Option<&str>) -> String {
    match namespace.filter(|_| K::NAMESPACED) {
        Some(namespace) => format!("{}{namespace}/", K::PREFIX),
        None => K::PREFIX.to_owned(),
    }
}

/// The `range_end` of a prefix; `prefix` must end with an ASCII character.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// The revision of a transaction's response.
pub fn revision_of(reply: &TxnResponse) -> u64 {
    unsigned(
        reply
            .header()
            .map_or(0, etcd_client::ResponseHeader::revision),
    )
}

/// Revisions are never negative, but signed in etcd's messages.
fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Awaits a response for at most [`REQUEST_TIMEOUT`].
async fn with_timeout<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, ClientError> {
    match timeout(REQUEST_TIMEOUT, call).await {
        Ok(reply) => reply.map_err(ClientError::from),
        Err(_elapsed) => Err(ClientError::Timeout {
            after: REQUEST_TIMEOUT,
        }),
    }
}

/// Awaits the answer of a combined operation for at most [`REQUEST_TIMEOUT`].
async fn with_answer(
    operation: impl Future<Output = Result<Answer, Option<Arc<etcd_client::Error>>>>,
) -> Result<Answer, ClientError> {
    let after = REQUEST_TIMEOUT;
    match timeout(after, operation).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Some(error))) => Err(error.into()),
        Ok(Err(None)) | Err(_) => Err(ClientError::Timeout { after }),
    }
}
