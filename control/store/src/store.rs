//! The keyspace, the leases and the watches behind one lock, with the limits of requests.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::{sync::Notify, time::Instant};

use crate::{
    Error,
    keyspace::{Event, KeyRange, Keyspace, Page, PageLimits, Revision},
    lease::{LeaseId, Leases, Remaining, Since},
    metrics::Metrics,
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
        RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
    },
    txn,
    watch::{Hub, Inbox, Interest, WatchId},
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
        f.debug_struct("Store").field("cluster_id", &self.shared.cluster_id).finish_non_exhaustive()
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

    // --- Keys ---

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
        metrics.keys.set(i64::try_from(state.keyspace.keys_live()).unwrap_or(i64::MAX));
        metrics.revision.set(state.keyspace.current());
        metrics.watchers.set(i64::try_from(state.hub.len()).unwrap_or(i64::MAX));
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

    // --- Leases ---

    fn now(&self) -> Since {
        self.shared.started.elapsed()
    }

    /// Makes a lease (number 0: the store chooses) and returns its number and seconds.
    pub fn lease_grant(&self, id: LeaseId, ttl_s: i64) -> Result<(LeaseId, i64, Revision), Error> {
        let now = self.now();
        let mut state = self.shared.state.write();
        self.check_quota(&state)?;
        let id = if id == 0 { unused_lease(&state.leases) } else { id };
        let ttl_s = state.leases.grant(id, ttl_s, now)?;
        self.shared.leases_changed.notify_one();
        Ok((id, ttl_s, state.keyspace.current()))
    }

    /// Ends a lease; its keys go in one revision, which is returned.
    pub fn lease_revoke(&self, id: LeaseId) -> Result<Revision, Error> {
        self.write(|state| Ok(((), revoke(state, id)?))).map(|((), header)| header.revision)
    }

    /// Starts a lease's time anew; returns its seconds, 0 if there is none.
    pub fn lease_renew(&self, id: LeaseId) -> (i64, Revision) {
        let now = self.now();
        let mut state = self.shared.state.write();
        let ttl_s = state.leases.renew(id, now).unwrap_or(0);
        (ttl_s, state.keyspace.current())
    }

    /// What is left of a lease, if it exists.
    pub fn lease_remaining(&self, id: LeaseId) -> (Option<Remaining>, Revision) {
        let now = self.now();
        let state = self.shared.state.read();
        (state.leases.remaining(id, now).ok(), state.keyspace.current())
    }

    /// All leases, the one that ends first in front.
    pub fn leases(&self) -> (Vec<LeaseId>, Revision) {
        let state = self.shared.state.read();
        (state.leases.by_expiry().collect(), state.keyspace.current())
    }

    /// Ends leases as their time comes, for ever. Dropping it loses nothing.
    pub(crate) async fn expire_leases(&self) {
        loop {
            let next = self.shared.state.read().leases.next_expiry();
            let changed = self.shared.leases_changed.notified();
            match next {
                None => changed.await,
                Some(expiry) => {
                    let due = tokio::time::sleep_until(self.shared.started + expiry);
                    tokio::select! {
                        () = due => self.expire_due(),
                        () = changed => {}
                    }
                }
            }
        }
    }

    fn expire_due(&self) {
        let now = self.now();
        loop {
            // One lock for each lease, so that a crowd of them does not hold up requests.
            let revoked = self.write(|state| match state.leases.expired(now) {
                Some(id) => Ok((true, revoke(state, id)?)),
                None => Ok((false, Vec::new())),
            });
            if !matches!(revoked, Ok((true, _))) {
                return;
            }
        }
    }

    // --- Watches ---

    /// Adds a watch and returns the current revision, or, with it, the compacted one if the watch
    /// asks for less. A start of 0 is the next revision.
    pub(crate) fn watch(
        &self,
        inbox: &Arc<Inbox>,
        id: WatchId,
        range: &KeyRange,
        start: Revision,
    ) -> (Revision, Result<(), Revision>) {
        let mut state = self.shared.state.write();
        let (current, compacted) = (state.keyspace.current(), state.keyspace.compacted());
        if start > 0 && start < compacted {
            return (current, Err(compacted));
        }
        let from = if start > 0 { start } else { current + 1 };
        state.hub.add(Interest { inbox: Arc::clone(inbox), id, range: range.clone(), from });
        if from <= current {
            inbox.mark(id, from);
        }
        self.observe(&state);
        (current, Ok(()))
    }

    /// Removes a watch.
    pub(crate) fn unwatch(&self, inbox: &Arc<Inbox>, id: WatchId, range: &KeyRange) {
        let mut state = self.shared.state.write();
        state.hub.remove(inbox, id, range);
        self.observe(&state);
    }

    /// A page of history and the compacted revision; refused, only the latter.
    pub(crate) fn changes(
        &self,
        range: &KeyRange,
        from: Revision,
        live: bool,
        limits: PageLimits,
    ) -> (Result<Page, Error>, Revision) {
        let state = self.shared.state.read();
        let page = state.keyspace.changes(range, from, live, limits);
        (page, state.keyspace.compacted())
    }

    /// The current revision, if the stream has nothing to read up to it.
    pub(crate) fn progress(&self, inbox: &Inbox) -> Option<Revision> {
        // Marks are made under the write lock, so both are of one moment.
        let state = self.shared.state.read();
        inbox.is_empty().then(|| state.keyspace.current())
    }
}

fn revoke(state: &mut State, id: LeaseId) -> Result<Vec<Event>, Error> {
    let keys = state.leases.revoke(id)?;
    let mut write = state.keyspace.write();
    for key in keys {
        write.delete(&KeyRange::One(key));
    }
    Ok(write.finish())
}

/// Not a secret, only a number that differs from store to store; never 0.
fn random() -> u64 {
    RandomState::new().hash_one(0) | 1
}

fn unused_lease(leases: &Leases) -> LeaseId {
    loop {
        let id = LeaseId::try_from(random() >> 1).unwrap_or(LeaseId::MAX);
        if id != 0 && !leases.contains(id) {
            return id;
        }
    }
}
