//! Permission checks of requests, in etcd's order: the first operation without permission decides.

use std::sync::Arc;

use bytes::Bytes;

use super::{AuthError, Right, State, permission::Span, state::is_root};
use crate::{
    lease::LeaseId,
    proto::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op::Request,
    },
};

/// The user of a request, at the revision of users and roles at which it was authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// `None`: the request has neither a token nor a certificate.
    pub user: Option<Arc<str>>,
    /// [`State::revision`] at that time.
    pub revision: u64,
}

impl State {
    /// Checks that the request has a user, whatever its permissions are.
    pub fn check_user(&self, caller: &Caller) -> Result<(), AuthError> {
        if self.enabled && caller.user.is_none() {
            return Err(AuthError::UserEmpty);
        }
        Ok(())
    }

    /// Checks that the user has the role `root`.
    pub fn check_root(&self, caller: &Caller) -> Result<(), AuthError> {
        if !self.enabled {
            return Ok(());
        }
        let name = caller.user.as_ref().filter(|name| !name.is_empty());
        let user = self.user(name.ok_or(AuthError::UserEmpty)?)?;
        if is_root(user) {
            Ok(())
        } else {
            Err(AuthError::PermissionDenied)
        }
    }

    /// Checks that the user has a right on the range that the fields of a request name.
    pub fn check_range(
        &self,
        caller: &Caller,
        right: Right,
        (key, range_end): (&[u8], &[u8]),
    ) -> Result<(), AuthError> {
        if !self.enabled {
            return Ok(());
        }
        let name = caller.user.as_ref().ok_or(AuthError::UserEmpty)?;
        self.check_current(caller)?;
        let user = self.users.get(&**name).ok_or(AuthError::PermissionDenied)?;
        let permissions = self.permissions(name);
        let span = Span::new(key, range_end);
        if is_root(user) || permissions.is_some_and(|own| own.allow(right, &span)) {
            return Ok(());
        }
        Err(AuthError::PermissionDenied)
    }

    /// Checks that users and roles have not changed since the request was authenticated.
    pub fn check_current(&self, caller: &Caller) -> Result<(), AuthError> {
        if self.enabled && caller.user.is_some() && caller.revision != self.revision() {
            return Err(AuthError::OldRevision);
        }
        Ok(())
    }

    /// Checks that the user has a right on each of the keys.
    pub fn check_keys(
        &self,
        caller: &Caller,
        right: Right,
        keys: &[Bytes],
    ) -> Result<(), AuthError> {
        keys.iter()
            .try_for_each(|key| self.check_range(caller, right, (key, b"")))
    }
}

/// The check of the operations of one request.
pub(crate) struct Check<'a> {
    pub(super) state: &'a State,
    pub(super) caller: &'a Caller,
    /// The keys of a lease.
    pub(super) lease_keys: &'a dyn Fn(LeaseId) -> Vec<Bytes>,
}

impl Check<'_> {
    fn range(&self, right: Right, key: &[u8], range_end: &[u8]) -> Result<(), AuthError> {
        self.state.check_range(self.caller, right, (key, range_end))
    }

    /// A put needs the right on the key and, since the user could revoke the lease then, on all keys
    /// of its lease.
    pub(crate) fn put(&self, request: &PutRequest) -> Result<(), AuthError> {
        self.range(Right::Write, &request.key, b"")?;
        if request.lease != 0 {
            self.lease_revoke(request.lease)?;
        }
        if request.prev_kv {
            self.range(Right::Read, &request.key, b"")?;
        }
        Ok(())
    }

    /// A revocation needs the right on all keys of the lease.
    pub(crate) fn lease_revoke(&self, id: LeaseId) -> Result<(), AuthError> {
        // A lease may have many keys, and `root` has the right on each.
        if self.state.check_root(self.caller).is_ok() {
            return Ok(());
        }
        let keys = (self.lease_keys)(id);
        self.state.check_keys(self.caller, Right::Write, &keys)
    }

    pub(crate) fn delete_range(&self, request: &DeleteRangeRequest) -> Result<(), AuthError> {
        self.range(Right::Write, &request.key, &request.range_end)?;
        if request.prev_kv {
            self.range(Right::Read, &request.key, &request.range_end)?;
        }
        Ok(())
    }

    /// Both branches need permission, whichever is taken, and so do nested transactions.
    pub(crate) fn txn(&self, request: &TxnRequest) -> Result<(), AuthError> {
        for compare in &request.compare {
            self.range(Right::Read, &compare.key, &compare.range_end)?;
        }
        let mut operations = request.success.iter().chain(&request.failure);
        operations.try_for_each(|operation| self.operation(operation))
    }

    fn operation(&self, operation: &RequestOp) -> Result<(), AuthError> {
        match &operation.request {
            Some(Request::RequestRange(range)) => {
                self.range(Right::Read, &range.key, &range.range_end)
            }
            Some(Request::RequestPut(put)) => self.put(put),
            Some(Request::RequestDeleteRange(delete)) => self.delete_range(delete),
            Some(Request::RequestTxn(txn)) => self.txn(txn),
            None => Ok(()),
        }
    }
}
