//! The store: the keyspace, the leases and the watchers behind one lock, and the limits of requests.

mod alarms;
mod compaction;
mod durability;
mod export;
mod leases;
mod limits;
mod pins;
mod publish;
mod reads;
mod restore;
mod sizes;
mod snapshots;
mod stream;
mod unsent;
mod watches;

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Error,
    alarm::Alarms,
    auth::{Auth, AuthError, Caller, Check, Unchanged},
    commit::Frontier,
    durable::{Cause, Journal, Lost, Restored, Written},
    keyspace::{KeyRange, Keyspace, Revision},
    lease::Leases,
    metrics::Metrics,
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, Member, PutRequest, PutResponse, ResponseHeader,
        TxnRequest, TxnResponse,
    },
    quota,
    txn::{self, Beside},
    watch::{Recent, Watchers},
};
pub use limits::Limits;
use pins::Pins;
pub(crate) use reads::RangeAnswer;
pub use restore::RestoreError;
pub(crate) use stream::RangeParts;
pub(crate) use unsent::Held;
use unsent::Unsent;
pub(crate) use watches::PageRead;

/// Bytes of an empty store.
const BASE_BYTES: u64 = size_of::<Shared>() as u64;

#[derive(Debug)]
struct State {
    keyspace: Keyspace,
    leases: Leases,
    alarms: Alarms,
    /// The cause of the write in progress, for its record.
    cause: Cause,
}

impl State {
    fn new(keyspace: Keyspace) -> Self {
        Self {
            keyspace,
            leases: Leases::default(),
            alarms: Alarms::default(),
            cause: Cause::default(),
        }
    }

    /// Applies the committed events above a revision to the leases.
    fn attach_leases(&mut self, above: Revision) {
        match &self.cause {
            Cause::Deletion(range) => {
                self.leases.apply_deletion(range, (above, &self.keyspace));
            }
            Cause::Request | Cause::Revocation(_) => {
                self.leases.apply_above(above, &self.keyspace);
            }
        }
    }
}

/// Bytes in use as of the last change, for the quota: read for each put, without a lock.
#[derive(Debug, Default)]
struct Used {
    data: AtomicU64,
    watches: AtomicU64,
}

struct Shared {
    state: RwLock<State>,
    /// Locked before the state, never while the state is locked.
    watchers: Mutex<Watchers>,
    /// Locked by the one caller that notifies the watchers.
    publishing: Mutex<()>,
    /// Written after the state is locked; read with no other lock.
    recent: RwLock<Recent>,
    limits: Limits,
    cluster_id: u64,
    member_id: u64,
    started: Instant,
    metrics: Metrics,
    auth: Auth,
    /// Notified by a grant: the next expiry of a lease may be earlier than before.
    leases_changed: Notify,
    used: Used,
    frontier: Frontier,
    pins: Pins,
    unsent: Arc<Unsent>,
    /// Notified by a compaction: there is memory to free.
    compacted: Notify,
    /// `None`: the state is in memory only.
    journal: Option<Journal>,
    lost: Lost,
    /// The members that clients changed: this one if its peer URLs were updated, and learners.
    members: Mutex<Vec<Member>>,
    /// Notified by a compaction: a snapshot may be due.
    snapshot_due: Notify,
    /// Bytes of the last snapshot of this run.
    snapshot_bytes: AtomicU64,
}

impl Shared {
    /// A store in memory.
    fn new(limits: Limits, state: State) -> Self {
        Self {
            frontier: Frontier::new(state.keyspace.current()),
            state: RwLock::new(state),
            watchers: Mutex::default(),
            publishing: Mutex::default(),
            recent: RwLock::default(),
            limits,
            // An empty store is a new cluster; clients recognise it by the cluster ID.
            cluster_id: random(),
            member_id: random(),
            started: Instant::now(),
            metrics: Metrics::default(),
            auth: Auth::new(limits.auth),
            leases_changed: Notify::new(),
            used: Used::default(),
            pins: Pins::default(),
            unsent: Arc::default(),
            compacted: Notify::new(),
            journal: None,
            lost: Lost::default(),
            members: Mutex::default(),
            snapshot_due: Notify::new(),
            snapshot_bytes: AtomicU64::new(0),
        }
    }

    /// A store on a data directory.
    fn restored(limits: Limits, restored: Restored, journal: Journal) -> Self {
        let identity = journal.identity();
        let state = State {
            keyspace: restored.keyspace.finish(),
            leases: restored.leases,
            alarms: restored.alarms,
            cause: Cause::default(),
        };
        let mut shared = Self::new(limits, state);
        shared.auth.restore(restored.auth);
        shared.cluster_id = identity.cluster;
        shared.member_id = identity.member;
        shared.lost = restored.lost;
        shared.members = Mutex::new(restored.members);
        shared.journal = Some(journal);
        shared
    }
}

/// A handle to the store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("cluster_id", &self.shared.cluster_id)
            .finish_non_exhaustive()
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// An empty store with etcd's limits.
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// An empty store in memory.
    pub fn with_limits(limits: Limits) -> Self {
        let keyspace = Keyspace::new(limits.quota_bytes);
        Self::of(Shared::new(limits, State::new(keyspace)))
    }

    fn of(shared: Shared) -> Self {
        let store = Self {
            shared: Arc::new(shared),
        };
        store.update_gauges(&store.shared.state.read());
        store
    }

    /// Registers the store's metrics under etcd's names.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
        registry.register_collector(Box::new(sizes::Sizes(self.clone())));
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The limits given to [`Store::with_limits`].
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Users, roles and logins.
    pub fn auth(&self) -> &Auth {
        &self.shared.auth
    }

    /// The revision of the last write that clients can see.
    pub fn revision(&self) -> Revision {
        self.shared.frontier.visible()
    }

    /// The header of a response at a revision.
    pub fn header(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.shared.cluster_id,
            member_id: self.shared.member_id,
            revision,
            raft_term: 1,
        }
    }

    /// Resident bytes of keys, versions, indexes, log, leases and watches.
    pub fn bytes(&self) -> u64 {
        let watches = self.shared.watchers.lock().bytes() + self.shared.recent.read().bytes();
        let state = self.shared.state.read();
        BASE_BYTES + state.keyspace.held_bytes() + state.leases.bytes() + watches
    }

    /// The bytes of [`Store::bytes`] without the free slots that the next versions fill; the quota
    /// limits them.
    pub fn bytes_in_use(&self) -> u64 {
        let Used { data, watches } = &self.shared.used;
        BASE_BYTES + data.load(Ordering::Relaxed) + watches.load(Ordering::Relaxed)
    }

    /// Puts one key, see [`Store::put_as`].
    pub async fn put(&self, request: &PutRequest) -> Result<PutResponse, Error> {
        self.put_as(None, request).await
    }

    /// Puts one key for a client; `None` is this process, which may do everything. A caller that drops
    /// the future does not learn whether the put happened.
    pub(crate) async fn put_as(
        &self,
        caller: Option<&Caller>,
        request: &PutRequest,
    ) -> Result<PutResponse, Error> {
        self.check_transport(request)?;
        self.admit(quota::put(request))?;
        txn::check_put(request)?;
        self.check_size(request)?;
        self.shared.metrics.puts.inc();
        let (mut response, written) = self.write(|state| {
            state.alarms.check_growth()?;
            let _unchanged = self.permit(caller, state, |check| check.put(request))?;
            txn::put(&mut state.keyspace, &state.leases, request)
        })?;
        response.header = Some(self.answer(written).await?);
        Ok(response)
    }

    /// Deletes a range of keys, see [`Store::delete_range_as`].
    pub async fn delete_range(
        &self,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Error> {
        self.delete_range_as(None, request).await
    }

    /// Deletes a range of keys for a client, as [`Store::put_as`] puts one.
    pub(crate) async fn delete_range_as(
        &self,
        caller: Option<&Caller>,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Error> {
        self.check_transport(request)?;
        txn::check_delete_range(request)?;
        self.check_size(request)?;
        self.shared.metrics.deletes.inc();
        let (mut response, written) = self.write(|state| {
            state.alarms.check_write()?;
            let _unchanged = self.permit(caller, state, |check| check.delete_range(request))?;
            let response = txn::delete_range(&mut state.keyspace, request);
            if response.deleted > 0 {
                let range = KeyRange::new(&request.key, &request.range_end);
                state.cause = Cause::Deletion(range);
            }
            Ok(response)
        })?;
        response.header = Some(self.answer(written).await?);
        Ok(response)
    }

    /// Runs a transaction, see [`Store::txn_as`].
    pub async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        self.txn_as(None, request).await
    }

    /// Runs a transaction for a client, as [`Store::put_as`] puts a key. One that only reads is not
    /// checked.
    pub(crate) async fn txn_as(
        &self,
        caller: Option<&Caller>,
        request: &TxnRequest,
    ) -> Result<TxnResponse, Error> {
        self.check_transport(request)?;
        let growth = quota::txn(request);
        self.admit(growth)?;
        txn::check_txn(request, self.shared.limits.txn_ops_max)?;
        let read_only = txn::is_read_only(request);
        if !read_only {
            self.check_size(request)?;
        }
        self.shared.metrics.txns.inc();
        if read_only {
            return self.read_txn(request).await;
        }
        let (mut response, written) = self.write(|state| {
            if growth > 0 {
                state.alarms.check_growth()?;
            } else {
                state.alarms.check_write()?;
            }
            let _unchanged = self.permit(caller, state, |check| check.txn(request))?;
            let beside = Beside {
                leases: &state.leases,
                lost: &self.shared.lost,
            };
            txn::txn(&mut state.keyspace, beside, request)
        })?;
        response.header = Some(self.answer(written).await?);
        Ok(response)
    }

    /// Checks that a client may run the write in progress.
    fn permit(
        &self,
        caller: Option<&Caller>,
        state: &State,
        check: impl FnOnce(&Check<'_>) -> Result<(), AuthError>,
    ) -> Result<Option<Unchanged<'_>>, AuthError> {
        let lease_keys = |id| state.leases.keys(id);
        self.shared.auth.permit(caller, &lease_keys, check)
    }

    /// Runs one write under the lock and records it; returns its response.
    fn write<R>(
        &self,
        apply: impl FnOnce(&mut State) -> Result<R, Error>,
    ) -> Result<(R, Written), Error> {
        self.check_journal()?;
        let mut state = self.shared.state.write();
        let before = state.keyspace.current();
        let response = apply(&mut state)?;
        let revision = state.keyspace.current();
        if revision != before {
            state.attach_leases(before);
            self.update_gauges(&state);
        }
        let cause = std::mem::take(&mut state.cause);
        let journal = self.shared.journal.as_ref();
        let ticket = journal.map(|journal| journal.write(&state.keyspace, before, &cause));
        drop(state);
        if revision != before && ticket.is_none() {
            self.shared.frontier.advance(revision);
            self.publish();
        }
        Ok((response, Written { revision, ticket }))
    }

    fn update_gauges(&self, state: &State) {
        let metrics = &self.shared.metrics;
        metrics
            .keys
            .set(i64::try_from(state.keyspace.keys_live()).unwrap_or(i64::MAX));
        metrics.revision.set(state.keyspace.current());
        let data = state.keyspace.used_bytes() + state.leases.bytes();
        self.shared.used.data.store(data, Ordering::Relaxed);
    }

    fn check_size(&self, request: &impl Message) -> Result<(), Error> {
        if request.encoded_len() > self.shared.limits.request_bytes_max {
            return Err(Error::RequestTooLarge);
        }
        Ok(())
    }

    fn check_transport(&self, request: &impl Message) -> Result<(), Error> {
        if request.encoded_len() > self.shared.limits.message_bytes_max() {
            return Err(Error::MessageTooLarge);
        }
        Ok(())
    }
}

/// A number that differs between calls; not a secret, never 0.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0) | 1
}
