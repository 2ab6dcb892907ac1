//! Requests on keys and leases with the permissions of their user, for the KV, Watch, Lease, Lock and
//! Election services.

use bytes::Bytes;
use tonic::{Request, Status};

use super::guard;
use crate::{
    Error, Store,
    auth::{AuthError, Caller, Credentials, Right},
    keyspace::Revision,
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
        let caller = self.writer(|| txn::check_put(request))?;
        Ok(self.store.put_as(Some(&caller), request).await?)
    }

    /// Deletes a range of keys.
    pub(super) async fn delete_range(
        &self,
        request: &DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, Status> {
        let caller = self.writer(|| txn::check_delete_range(request))?;
        Ok(self.store.delete_range_as(Some(&caller), request).await?)
    }

    /// Runs a transaction.
    pub(super) async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        let ops_max = self.store.limits().txn_ops_max;
        let caller = self.writer(|| txn::check_txn(request, ops_max))?;
        let reads = txn::is_read_only(request);
        let auth = self.store.auth();
        if reads {
            auth.check_read_txn(&caller, request)?;
        }
        let response = self.store.txn_as(Some(&caller), request).await?;
        if reads {
            auth.read(|state| state.check_current(&caller))?;
        }
        Ok(response)
    }

    /// Revokes a lease and deletes its keys; returns the revision of that.
    pub(super) async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, Status> {
        let caller = self.writer(|| Ok(()))?;
        Ok(self.store.lease_revoke_as(Some(&caller), id).await?)
    }

    /// The user of a write. With authentication, its fields are checked before its token, as in etcd;
    /// the store checks the permissions when it writes.
    fn writer(&self, fields: impl FnOnce() -> Result<(), Error>) -> Result<Caller, Status> {
        if !self.store.auth().enabled() {
            return Ok(Caller::default());
        }
        fields()?;
        Ok(self.caller()?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::{Change, State},
        proto::{
            authpb::{Permission, permission::Type},
            etcdserverpb::{RequestOp, request_op::Request as Operation},
        },
    };

    async fn change(
        store: &Store,
        operation: impl FnOnce(&State) -> Result<Vec<Change>, AuthError>,
    ) {
        store.change_auth(operation).await.unwrap().unwrap();
    }

    /// A store with authentication, whose user `bob` may do everything with the key `key`.
    async fn authenticated() -> Store {
        let store = Store::new();
        for name in ["root", "bob"] {
            change(&store, |state| state.user_add(name, None)).await;
        }
        change(&store, |state| state.user_grant_role("root", "root")).await;
        change(&store, |state| state.role_add("app")).await;
        let permission = Permission {
            perm_type: Type::Readwrite.into(),
            key: "key".into(),
            range_end: "".into(),
        };
        change(&store, |state| state.role_grant("app", Some(permission))).await;
        change(&store, |state| state.user_grant_role("bob", "app")).await;
        change(&store, State::enable).await;
        store
    }

    fn bob(store: &Store) -> Caller {
        let credentials = Credentials {
            token: None,
            common_name: Some("bob".into()),
        };
        store.auth().caller(&credentials).unwrap()
    }

    fn put(lease: LeaseId) -> PutRequest {
        PutRequest {
            key: "key".into(),
            lease,
            ..PutRequest::default()
        }
    }

    #[tokio::test]
    async fn a_write_whose_user_lost_its_role_since_it_was_authenticated_changes_nothing() {
        let store = authenticated().await;
        let (lease, ..) = store.lease_grant(7, 60).await.unwrap();
        let before = bob(&store);
        store.put_as(Some(&before), &put(lease)).await.unwrap();
        change(&store, |state| state.user_revoke_role("bob", "app")).await;
        let revision = store.revision();
        let delete = DeleteRangeRequest {
            key: "key".into(),
            ..DeleteRangeRequest::default()
        };
        let txn = TxnRequest {
            success: vec![RequestOp {
                request: Some(Operation::RequestPut(put(0))),
            }],
            ..TxnRequest::default()
        };
        for (caller, refusal) in [
            (before, AuthError::OldRevision),
            (bob(&store), AuthError::PermissionDenied),
            (Caller::default(), AuthError::UserEmpty),
        ] {
            let caller = Some(&caller);
            let refused = Error::Auth(refusal);
            assert_eq!(store.put_as(caller, &put(0)).await, Err(refused));
            assert_eq!(store.delete_range_as(caller, &delete).await, Err(refused));
            assert_eq!(store.txn_as(caller, &txn).await, Err(refused));
            assert_eq!(store.lease_revoke_as(caller, lease).await, Err(refused));
        }
        assert_eq!(store.revision(), revision);
        store.put(&put(lease)).await.unwrap();
    }
}
