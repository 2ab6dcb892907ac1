//! The keyspace, the leases and the watches behind one lock, with the limits of requests.

mod leases;
mod watches;

use std::{collections::hash_map::RandomState, fmt, hash::BuildHasher, sync::Arc, time::Duration};

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Error,
    keyspace::{Event, Keyspace, Revision},
    lease::Leases,
    metrics::Metrics,
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
        RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
    },
    txn,
    watch::Hub,
};

/// What the transport may carry beyond the largest write.
const TRANSPORT_OVERHEAD_BYTES: usize = 512 << 10;

/// Limits of the store; the defaults are etcd's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of an encoded write.
    pub request_bytes_max: usize,
    /// Entries of each list of a transaction.
    pub txn_ops_max: usize,
    /// Bytes held by all versions of all keys, from which on writes are refused.
    pub quota_bytes: u64,
    /// How often an idle watch that asked for it is told of the revision.
    pub progress_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 1_536 << 10,
            txn_ops_max: 128,
            quota_bytes: 2 << 30,
            progress_interval: Duration::from_mins(10),
        }
    }
}

impl Limits {
    /// Bytes of the largest message in either direction that is not a read's answer.
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max + TRANSPORT_OVERHEAD_BYTES
    }
}

#[derive(Debug, Default)]
struct State {
    keyspace: Keyspace,
    leases: Leases,
    hub: Hub,
}

impl State {
    /// Lets leases and watches follow a finished revision.
    fn follow(&mut self, events: &[Event]) {
        for event in events {
            self.leases.follow(event);
        }
        self.hub.publish(events);
    }
}

struct Shared {
    state: RwLock<State>,
    limits: Limits,
    cluster_id: u64,
    member_id: u64,
    started: Instant,
    metrics: Metrics,
    /// Told when the next expiry of a lease may have come nearer.
    leases_changed: Notify,
}

/// A handle on the store; clones share it.
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
                limits,
                // A store that starts empty is a new cluster, and clients may notice.
                cluster_id: random(),
                member_id: random(),
                started: Instant::now(),
                metrics: Metrics::default(),
                leases_changed: Notify::new(),
            }),
        }
    }

    /// Adds the store's metrics, under etcd's names.
    pub fn register(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
    }

    /// The limits it was made with.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Revision of the last change.
    pub fn revision(&self) -> Revision {
        self.shared.state.read().keyspace.current()
    }

    /// The header of an answer given at a revision.
    pub fn header(&self, revision: Revision) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.shared.cluster_id,
            member_id: self.shared.member_id,
            revision,
            raft_term: 1,
        }
    }

    /// Bytes held, estimated.
    pub fn bytes(&self) -> u64 {
        size_of::<Keyspace>() as u64 + self.shared.state.read().keyspace.bytes()
    }

    /// Answers a read.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.check_transport(request)?;
        self.shared.metrics.ranges.inc();
        let state = self.shared.state.read();
        let mut response = txn::range(&state.keyspace, request)?;
        response.header = Some(self.header(state.keyspace.current()));
        Ok(response)
    }

    /// Writes one key.
    pub fn put(&self, request: &PutRequest) -> Result<PutResponse, Error> {
        self.check_size(request)?;
        self.shared.metrics.puts.inc();
        let (mut response, header) = self.write(|state| {
            self.check_quota(state)?;
            txn::put(&mut state.keyspace, &state.leases, request)
        })?;
        response.header = Some(header);
        Ok(response)
    }

    /// Deletes a range.
    pub fn delete_range(&self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        self.check_size(request)?;
        self.shared.metrics.deletes.inc();
        let (mut response, header) =
            self.write(|state| txn::delete_range(&mut state.keyspace, request))?;
        response.header = Some(header);
        Ok(response)
    }

    /// Runs a transaction.
    pub fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        if txn::is_read_only(request) {
            self.check_transport(request)?;
        } else {
            self.check_size(request)?;
        }
        self.shared.metrics.txns.inc();
        let ops_max = self.shared.limits.txn_ops_max;
        let (mut response, header) = self.write(|state| {
            if txn::has_put(request) {
                self.check_quota(state)?;
            }
            txn::txn(&mut state.keyspace, &state.leases, request, ops_max)
        })?;
        response.header = Some(header);
        Ok(response)
    }

    /// Forgets what only readers below a revision could see; returns the current one.
    pub fn compact(&self, revision: Revision) -> Result<Revision, Error> {
        let mut state = self.shared.state.write();
        state.keyspace.compact(revision)?;
        Ok(state.keyspace.current())
    }

    /// Runs one write, lets everything follow it and returns the header of its answer.
    fn write<R>(
        &self,
        apply: impl FnOnce(&mut State) -> Result<(R, Vec<Event>), Error>,
    ) -> Result<(R, ResponseHeader), Error> {
        let mut state = self.shared.state.write();
        let (response, events) = apply(&mut state)?;
        state.follow(&events);
        self.observe(&state);
        Ok((response, self.header(state.keyspace.current())))
    }

    fn observe(&self, state: &State) {
        let metrics = &self.shared.metrics;
        metrics
            .keys
            .set(i64::try_from(state.keyspace.keys_live()).unwrap_or(i64::MAX));
        metrics.revision.set(state.keyspace.current());
        metrics
            .watchers
            .set(i64::try_from(state.hub.len()).unwrap_or(i64::MAX));
    }

    fn check_size(&self, request: &impl Message) -> Result<(), Error> {
        self.check_transport(request)?;
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

    fn check_quota(&self, state: &State) -> Result<(), Error> {
        if state.keyspace.bytes() >= self.shared.limits.quota_bytes {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}

/// Not a secret, only a number that differs from store to store; never 0.
fn random() -> u64 {
    RandomState::new().hash_one(0) | 1
}
