//! The requests of the load, one type for each kind.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tonic::transport::Channel;

use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::kv_client::KvClient;
use crate::proto::{
    CompactionRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest, TxnResponse, request_op::Request,
};

/// The prefix of all keys but those of leases, as kube-apiserver's.
pub(crate) const PREFIX: &str = "/registry/pods/default/";
/// Bytes of a key of [`key`].
pub(crate) const KEY_BYTES: usize = PREFIX.len() + 9;

/// The key with a number.
pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("{PREFIX}{number:09}"))
}

/// The first key after all keys of [`key`].
pub(crate) fn end() -> Bytes {
    Bytes::from_static(b"/registry/pods/default0")
}

/// The key that is put after all others, so that watchers find the end.
pub(crate) fn last() -> Bytes {
    Bytes::from_static(b"/registry/pods/default/last")
}

/// Puts the [`last`] key.
pub(crate) async fn put_last(kv: &mut KvClient<Channel>) -> Result<()> {
    kv.put(put(last(), Bytes::new())).await?;
    Ok(())
}

/// A kind of request. All tasks of a load share one value.
pub(crate) trait Work: Send + Sync + 'static {
    /// Sends one request and checks the response.
    fn once(&self, kv: &mut KvClient<Channel>) -> impl Future<Output = Result<()>> + Send;
}

/// Puts: of new keys, or of the same keys again and again.
pub(crate) struct Put {
    next: AtomicU64,
    keys: u64,
    value: Bytes,
}

impl Put {
    /// Puts of keys below `keys`, in order, starting again after the last one.
    pub(crate) fn among(keys: u64, value_bytes: usize) -> Self {
        Self {
            next: AtomicU64::new(0),
            keys,
            value: value(value_bytes),
        }
    }

    /// Puts of new keys.
    pub(crate) fn new_keys(value_bytes: usize) -> Self {
        Self::among(u64::MAX, value_bytes)
    }
}

impl Work for Put {
    async fn once(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        let number = self.next.fetch_add(1, Relaxed) % self.keys;
        kv.put(put(key(number), self.value.clone())).await?;
        Ok(())
    }
}

/// Leases that one transaction creates; etcd's limit is 128.
const LEASES_A_TXN: usize = 100;

fn lease_key(node: usize) -> Bytes {
    Bytes::from(format!("/registry/leases/kube-node-lease/node-{node:08}"))
}

/// Renewals of node leases as kube-apiserver writes them: a put if the revision of the key is the expected one.
pub(crate) struct LeaseTxn {
    revisions: Vec<AtomicI64>,
    next: AtomicU64,
    value: Bytes,
}

impl LeaseTxn {
    /// Renewals of the leases of `nodes` nodes, one after the other; the first of each creates it.
    pub(crate) fn new(nodes: usize, value_bytes: usize) -> Self {
        Self {
            revisions: (0..nodes).map(|_| AtomicI64::new(0)).collect(),
            next: AtomicU64::new(0),
            value: value(value_bytes),
        }
    }

    /// Creates the leases of all nodes, 100 in a transaction.
    pub(crate) async fn create_all(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        for (part, revisions) in self.revisions.chunks(LEASES_A_TXN).enumerate() {
            let first = part * LEASES_A_TXN;
            let nodes = first..first + revisions.len();
            let request = TxnRequest {
                success: nodes
                    .map(|node| put_op(lease_key(node), self.value.clone()))
                    .collect(),
                ..TxnRequest::default()
            };
            let created = revision(&kv.txn(request).await?.into_inner());
            for revision in revisions {
                revision.store(created, Relaxed);
            }
        }
        Ok(())
    }

    fn request(&self, node: usize, revision: i64) -> TxnRequest {
        let key = lease_key(node);
        let compare = Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::ModRevision(revision)),
            range_end: Bytes::new(),
        };
        TxnRequest {
            compare: vec![compare],
            success: vec![put_op(key.clone(), self.value.clone())],
            failure: vec![RequestOp {
                request: Some(Request::RequestRange(one(key))),
            }],
        }
    }
}

impl Work for LeaseTxn {
    async fn once(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        let count = self.revisions.len() as u64;
        let node = usize::try_from(self.next.fetch_add(1, Relaxed) % count)?;
        let slot = self.revisions.get(node).context("no such node")?;
        let request = self.request(node, slot.load(Relaxed));
        let response = kv.txn(request).await?.into_inner();
        ensure!(response.succeeded, "another client renewed lease {node}");
        slot.store(revision(&response), Relaxed);
        Ok(())
    }
}

/// Reads of single keys, at random.
pub(crate) struct Get {
    /// The keys below this number exist.
    pub(crate) keys: u64,
}

impl Work for Get {
    async fn once(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        let request = one(key(fastrand::u64(..self.keys)));
        let response = kv.range(request).await?.into_inner();
        ensure!(response.kvs.len() == 1, "a key is missing");
        Ok(())
    }
}

/// Pages of a list, from random keys on.
pub(crate) struct List {
    /// The keys below this number exist.
    pub(crate) keys: u64,
    /// Keys of a page.
    pub(crate) limit: u64,
}

impl Work for List {
    async fn once(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        let from = key(fastrand::u64(..=self.keys - self.limit));
        let request = RangeRequest {
            limit: i64::try_from(self.limit)?,
            ..range(from)
        };
        let page = kv.range(request).await?.into_inner();
        ensure!(page.kvs.len() as u64 == self.limit, "a page is short");
        Ok(())
    }
}

/// Counts of all keys.
pub(crate) struct Count;

impl Work for Count {
    async fn once(&self, kv: &mut KvClient<Channel>) -> Result<()> {
        count(kv).await.map(drop)
    }
}

/// Number of the keys of [`key`] in the server.
pub(crate) async fn count(kv: &mut KvClient<Channel>) -> Result<i64> {
    let request = RangeRequest {
        count_only: true,
        ..range(key(0))
    };
    Ok(kv.range(request).await?.into_inner().count)
}

/// A transaction that puts the keys with these numbers.
pub(crate) fn fill(numbers: &[u64], value: &Bytes) -> TxnRequest {
    TxnRequest {
        success: numbers
            .iter()
            .map(|number| put_op(key(*number), value.clone()))
            .collect(),
        ..TxnRequest::default()
    }
}

/// A value of this size.
pub(crate) fn value(bytes: usize) -> Bytes {
    Bytes::from(vec![b'v'; bytes])
}

fn put(key: Bytes, value: Bytes) -> PutRequest {
    PutRequest {
        key,
        value,
        ..PutRequest::default()
    }
}

fn put_op(key: Bytes, value: Bytes) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestPut(put(key, value))),
    }
}

fn one(key: Bytes) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

fn range(from: Bytes) -> RangeRequest {
    RangeRequest {
        key: from,
        range_end: end(),
        ..RangeRequest::default()
    }
}

fn revision(response: &TxnResponse) -> i64 {
    response.header.as_ref().map_or(0, |header| header.revision)
}

/// Compacts at the current revision, physically; returns the time until the response.
pub(crate) async fn compact(mut kv: KvClient<Channel>) -> Result<Duration> {
    let current = kv.range(one(last())).await?.into_inner().header;
    let began = Instant::now();
    let request = CompactionRequest {
        revision: current.map_or(0, |header| header.revision),
        physical: true,
    };
    kv.compact(request).await?;
    Ok(began.elapsed())
}

/// Deletes all keys of [`key`]; returns their number.
pub(crate) async fn delete_all(mut kv: KvClient<Channel>) -> Result<i64> {
    let request = DeleteRangeRequest {
        key: key(0),
        range_end: end(),
        prev_kv: false,
    };
    Ok(kv.delete_range(request).await?.into_inner().deleted)
}
