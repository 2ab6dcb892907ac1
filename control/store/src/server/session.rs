//! Requests on keys and leases with the permissions of their user, for the KV, Watch, Lease, Lock and
//! Election services.

use bytes::Bytes;
use tonic::{Request, Status};

use super::guard;
use crate::{
    Store,
    auth::{AuthError, Caller, Credentials, Right},
    lease::LeaseId,
    proto::etcdserverpb::{
        CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
        PutResponse, RangeRequest, TxnRequest, TxnResponse,
    },
    store::RangeAnswer,
    txn,
};

/// The store as one user may use it. Checks precede each request, in etcd's order: its fields, the
/// token, the permissions. While authentication is disabled the requests go to the store unchecked.
#[derive(Clone, Debug)]
pub(super) struct Session<'a> {
    store: &'a Store,
    credentials: Credentials,
}

impl<'a> Session<'a> {
    /// The session of one request.
    pub(super) fn new<T>(store: &'a Store, request: &Request<T>) -> Self {
        // If authentication is enabled right after this, the request has no user.
        let credentials = if store.auth().enabled() {
            guard::of_request(request)
        } else {
            Credentials::default()
        };
        Self { store, credentials }
    }

    /// The session of a request of a stream.
    pub(super) fn of_stream(store: &'a Store, credentials: &Credentials) -> Self {
        let credentials = credentials.clone();
        Self { store, credentials }
    }

    /// Serves a range request. Users and roles may not change while it is served: the response could
    /// have keys that the user may no longer read.
    pub(super) async fn range(&self, request: &RangeRequest) -> Result<RangeAnswer, Status> {
        let auth = self.store.auth();
        if !auth.enabled() {
            return Ok(self.store.range_answer(request).await?);
        }
        txn::check_range(request)?;
        let caller = self.caller()?;
        auth.check_read(&caller, &request.key, &request.range_end)?;
        let answer = self.store.range_answer(request).await?;
        auth.read(|state| state.check_current(&caller))?;
        Ok(answer)
    }

    /// Checks that the user may read the range of a request.
    pub(super) fn check_range(&self, request: &RangeRequest) -> Result<(), Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            auth.check_read(&self.caller()?, &request.key, &request.range_end)?;
        }
        Ok(())
    }

    /// Puts one key.
    pub(super) async fn put(&self, request: &PutRequest) -> Result<PutResponse, Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            txn::check_put(request)?;
            auth.check_put(&self.caller()?, request, &|id| self.lease_keys(id))?;
        }
        Ok(self.store.put(request).await?)
    }

    /// Deletes a range of keys.
    pub(super) async fn delete_range(
        &self,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            txn::check_delete_range(request)?;
            auth.check_delete_range(&self.caller()?, request)?;
        }
        Ok(self.store.delete_range(request).await?)
    }

    /// Runs a transaction.
    pub(super) async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        let auth = self.store.auth();
        if !auth.enabled() {
            return Ok(self.store.txn(request).await?);
        }
        txn::check_txn(request, self.store.limits().txn_ops_max)?;
        let caller = self.caller()?;
        auth.check_txn(&caller, request, &|id| self.lease_keys(id))?;
        let response = self.store.txn(request).await?;
        if txn::is_read_only(request) {
            auth.read(|state| state.check_current(&caller))?;
        }
        Ok(response)
    }

    /// Compacts the keyspace, for which the user needs the role `root`.
    pub(super) async fn compact(
        &self,
        request: &CompactionRequest,
    ) -> Result<CompactionResponse, Status> {
        self.check_root()?;
        let revision = self
            .store
            .compact(request.revision, request.physical)
            .await?;
        let header = Some(self.store.header(revision));
        Ok(CompactionResponse { header })
    }

    /// Checks that the user has the role `root`.
    pub(super) fn check_root(&self) -> Result<(), Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            let caller = self.caller()?;
            auth.read(|state| state.check_root(&caller))?;
        }
        Ok(())
    }

    /// Checks that the request has a user.
    pub(super) fn check_user(&self) -> Result<(), Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            let caller = self.caller()?;
            auth.read(|state| state.check_user(&caller))?;
        }
        Ok(())
    }

    /// Checks that the user may read a range, to watch it.
    pub(super) fn check_watch(&self, key: &[u8], range_end: &[u8]) -> Result<(), Status> {
        let auth = self.store.auth();
        if auth.enabled() {
            auth.check_read(&self.caller()?, key, range_end)?;
        }
        Ok(())
    }

    /// Checks that the user has a right on each key of the leases.
    pub(super) fn check_leases(&self, right: Right, ids: &[LeaseId]) -> Result<(), Status> {
        let auth = self.store.auth();
        if !auth.enabled() {
            return Ok(());
        }
        let caller = self.caller()?;
        // The leases of a cluster are many, and have many keys.
        if auth.read(|state| state.check_root(&caller)).is_ok() {
            return Ok(());
        }
        auth.read(|state| state.check_user(&caller))?;
        for &id in ids {
            let keys = self.lease_keys(id);
            auth.read(|state| state.check_keys(&caller, right, &keys))?;
        }
        Ok(())
    }

    fn caller(&self) -> Result<Caller, AuthError> {
        self.store.auth().caller(&self.credentials)
    }

    fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        let (lease, _) = self.store.lease_time_to_live(id);
        lease.map(|lease| lease.keys).unwrap_or_default()
    }
}
