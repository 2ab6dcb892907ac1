//! What is refused before anything is done: first by a request's form, then by the state it meets.

use super::{Choice, branch};
use crate::{
    Error,
    keyspace::{Keyspace, check_sort},
    lease::Leases,
    proto::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op::Request,
    },
};

fn key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        Err(Error::EmptyKey)
    } else {
        Ok(())
    }
}

pub(super) fn range(request: &RangeRequest) -> Result<(), Error> {
    key(&request.key)?;
    check_sort(request).map(|_| ())
}

pub(super) fn put(request: &PutRequest) -> Result<(), Error> {
    key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

pub(super) fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    key(&request.key)
}

/// Checks the form of a transaction, both branches, depth first. What its longest list uses of
/// `ops_max` is not there for nested ones.
pub(super) fn txn(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let lists = [
        request.compare.len(),
        request.success.len(),
        request.failure.len(),
    ];
    let used = lists.into_iter().max().unwrap_or(0);
    let left = ops_max.checked_sub(used).ok_or(Error::TooManyOps)?;
    request
        .compare
        .iter()
        .try_for_each(|compare| key(&compare.key))?;
    request
        .success
        .iter()
        .chain(&request.failure)
        .try_for_each(|op| operation(op, left))
}

fn operation(op: &RequestOp, ops_max: usize) -> Result<(), Error> {
    match &op.request {
        Some(Request::RequestRange(request)) => range(request),
        Some(Request::RequestPut(request)) => put(request),
        Some(Request::RequestDeleteRange(request)) => delete_range(request),
        Some(Request::RequestTxn(request)) => txn(request, ops_max),
        None => Err(Error::KeyNotFound),
    }
}

/// The lease that a put names exists.
pub(super) fn lease(leases: &Leases, request: &PutRequest) -> Result<(), Error> {
    if request.lease != 0 && !leases.contains(request.lease) {
        return Err(Error::LeaseNotFound);
    }
    Ok(())
}

/// What a put wants to keep exists.
pub(super) fn kept(keyspace: &Keyspace, request: &PutRequest) -> Result<(), Error> {
    let keeps = request.ignore_value || request.ignore_lease;
    if keeps && keyspace.latest(&request.key).is_none() {
        return Err(Error::KeyNotFound);
    }
    Ok(())
}

/// Checks the branches that will be taken against the state before the transaction.
pub(super) fn applies(
    keyspace: &Keyspace,
    leases: &Leases,
    request: &TxnRequest,
    choice: &Choice,
) -> Result<(), Error> {
    let mut nested = choice.nested.iter();
    for op in branch(request, choice.succeeded) {
        match &op.request {
            Some(Request::RequestRange(request)) => {
                keyspace.readable(request.revision)?;
            }
            // The other way round than for a put outside a transaction, as in etcd.
            Some(Request::RequestPut(request)) => {
                kept(keyspace, request)?;
                lease(leases, request)?;
            }
            Some(Request::RequestTxn(request)) => {
                if let Some(choice) = nested.next() {
                    applies(keyspace, leases, request, choice)?;
                }
            }
            Some(Request::RequestDeleteRange(_)) | None => {}
        }
    }
    Ok(())
}
