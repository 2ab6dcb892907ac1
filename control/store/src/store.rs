//! The store: the keyspace, the leases and the watchers behind one lock, and the limits of requests.

mod alarms;
mod leases;
mod sizes;
mod watches;

use std::{collections::hash_map::RandomState, fmt, hash::BuildHasher, sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Error,
    alarm::Alarms,
    auth::{self, Auth},
    keyspace::{Event, Keyspace, KeyspaceHash, Revision},
    lease::Leases,
    metrics::Metrics,
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
        RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
    },
    quota, txn,
    watch::Watchers,
};

/// Bytes of a gRPC message beyond the largest write; etcd's `grpcOverheadBytes`.
const TRANSPORT_OVERHEAD_BYTES: usize = 512 << 10;

/// Limits of the store; the defaults are etcd's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of an encoded write; etcd's `--max-request-bytes`.
    pub request_bytes_max: usize,
    /// Entries of each list of a transaction; etcd's `--max-txn-ops`.
    pub txn_ops_max: usize,
    /// Bytes of all versions of all keys at which puts fail; etcd's `--quota-backend-bytes`.
    pub quota_bytes: u64,
    /// Interval of progress notifications to idle watchers that requested them; etcd's
    /// `--watch-progress-notify-interval`.
    pub progress_interval: Duration,
    /// Options of users and logins.
    pub auth: auth::Options,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 1_536 << 10,
            txn_ops_max: 128,
            quota_bytes: 2 << 30,
            progress_interval: Duration::from_mins(10),
            auth: auth::Options::default(),
        }
    }
}

impl Limits {
    /// Bytes of the largest message in either direction, except responses to reads.
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max + TRANSPORT_OVERHEAD_BYTES
    }
}

#[derive(Debug, Default)]
struct State {
    keyspace: Keyspace,
    leases: Leases,
    alarms: Alarms,
}

impl State {
    /// Applies a committed revision to the leases.
    fn apply(&mut self, events: &[Event]) {
        for event in events {
            self.leases.apply(event);
        }
    }
}

struct Shared {
    state: RwLock<State>,
    /// Locked before the state, never while the state is locked.
    watchers: Mutex<Watchers>,
    limits: Limits,
    cluster_id: u64,
    member_id: u64,
    started: Instant,
    metrics: Metrics,
    auth: Auth,
    /// Notified by a grant: the next expiry of a lease may be earlier than before.
    leases_changed: Notify,
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

    /// An empty store.
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: RwLock::default(),
                watchers: Mutex::default(),
                limits,
                // An empty store is a new cluster; clients recognise it by the cluster ID.
                cluster_id: random(),
                member_id: random(),
                started: Instant::now(),
                metrics: Metrics::default(),
                auth: Auth::new(limits.auth),
                leases_changed: Notify::new(),
            }),
        }
    }

    /// Registers the store's metrics under etcd's names.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
        registry.register_collector(Box::new(sizes::Sizes(self.clone())));
    }

    /// The limits given to [`Store::with_limits`].
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Users, roles and logins.
    pub fn auth(&self) -> &Auth {
        &self.shared.auth
    }

    /// The revision of the last write.
    pub fn revision(&self) -> Revision {
        self.shared.state.read().keyspace.current()
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

    /// Estimated bytes in memory.
    pub fn bytes(&self) -> u64 {
        size_of::<Keyspace>() as u64 + self.shared.state.read().keyspace.bytes()
    }

    /// Serves a range request.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.check_transport(request)?;
        self.shared.metrics.ranges.inc();
        let state = self.shared.state.read();
        let mut response = txn::range(&state.keyspace, request)?;
        response.header = Some(self.header(state.keyspace.current()));
        Ok(response)
    }

    /// Puts one key.
    pub fn put(&self, request: &PutRequest) -> Result<PutResponse, Error> {
        self.check_transport(request)?;
        self.admit(quota::put(request))?;
        txn::check_put(request)?;
        self.check_size(request)?;
        self.shared.metrics.puts.inc();
        let (mut response, header) = self.write(|state| {
            state.alarms.check_growth()?;
            txn::put(&mut state.keyspace, &state.leases, request)
        })?;
        response.header = Some(header);
        Ok(response)
    }

    /// Deletes a range of keys.
    pub fn delete_range(&self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        self.check_transport(request)?;
        txn::check_delete_range(request)?;
        self.check_size(request)?;
        self.shared.metrics.deletes.inc();
        let (mut response, header) = self.write(|state| {
            state.alarms.check_write()?;
            Ok(txn::delete_range(&mut state.keyspace, request))
        })?;
        response.header = Some(header);
        Ok(response)
    }

    /// Runs a transaction.
    pub fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        self.check_transport(request)?;
        let growth = quota::txn(request);
        self.admit(growth)?;
        txn::check_txn(request, self.shared.limits.txn_ops_max)?;
        let read_only = txn::is_read_only(request);
        if !read_only {
            self.check_size(request)?;
        }
        self.shared.metrics.txns.inc();
        let (mut response, header) = self.write(|state| {
            if growth > 0 {
                state.alarms.check_growth()?;
            } else if !read_only {
                state.alarms.check_write()?;
            }
            txn::txn(&mut state.keyspace, &state.leases, request)
        })?;
        response.header = Some(header);
        Ok(response)
    }

    /// Compacts the keyspace at a revision; returns the current revision.
    pub fn compact(&self, revision: Revision) -> Result<Revision, Error> {
        // The watchers are marked first: a compaction drops events.
        self.publish(revision);
        let mut state = self.shared.state.write();
        state.alarms.check_write()?;
        state.keyspace.compact(revision)?;
        Ok(state.keyspace.current())
    }

    /// The hash of the keyspace up to a revision (0: the current one), and the current revision.
    pub fn hash(&self, revision: Revision) -> Result<(KeyspaceHash, Revision), Error> {
        let state = self.shared.state.read();
        let hash = state.keyspace.hash(revision)?;
        Ok((hash, state.keyspace.current()))
    }

    /// Runs one write under the lock, notifies the watchers; returns the header of the response.
    fn write<R>(
        &self,
        apply: impl FnOnce(&mut State) -> Result<(R, Vec<Event>), Error>,
    ) -> Result<(R, ResponseHeader), Error> {
        let mut state = self.shared.state.write();
        let (response, events) = apply(&mut state)?;
        state.apply(&events);
        self.update_gauges(&state);
        let revision = state.keyspace.current();
        drop(state);
        self.publish(revision);
        Ok((response, self.header(revision)))
    }

    fn update_gauges(&self, state: &State) {
        let metrics = &self.shared.metrics;
        metrics
            .keys
            .set(i64::try_from(state.keyspace.keys_live()).unwrap_or(i64::MAX));
        metrics.revision.set(state.keyspace.current());
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
