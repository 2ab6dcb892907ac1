//! Validation of requests before they are applied: first their fields, then against the keyspace.

use super::{Beside, TxnPath, branch};
use crate::{
    Error,
    keyspace::{View, check_sort},
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

/// Checks the fields of a transaction, both branches, depth first. The longest list is subtracted
/// from `ops_max` for nested transactions.
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

/// Checks that the lease of a put exists.
pub(super) fn lease(leases: &Leases, request: &PutRequest) -> Result<(), Error> {
    if request.lease != 0 && !leases.contains(request.lease) {
        return Err(Error::LeaseNotFound);
    }
    Ok(())
}

/// Checks that the key of a put with `ignore_value` or `ignore_lease` exists.
pub(super) fn ignore_flags(view: View<'_>, request: &PutRequest) -> Result<(), Error> {
    let ignores = request.ignore_value || request.ignore_lease;
    if ignores && view.get(&request.key).is_none() {
        return Err(Error::KeyNotFound);
    }
    Ok(())
}

/// Checks the operations on the transaction's path against the state before the transaction.
pub(super) fn path(
    view: View<'_>,
    beside: Beside<'_>,
    request: &TxnRequest,
    taken: &TxnPath,
) -> Result<(), Error> {
    let mut nested = taken.nested.iter();
    for op in branch(request, taken.succeeded) {
        match &op.request {
            Some(Request::RequestRange(request)) => {
                beside.lost.check(request)?;
                view.read_revision(request.revision)?;
            }
            // As in etcd, the order of these checks is the reverse of a put outside a transaction.
            Some(Request::RequestPut(request)) => {
                ignore_flags(view, request)?;
                lease(beside.leases, request)?;
            }
            Some(Request::RequestTxn(request)) => {
                if let Some(nested_path) = nested.next() {
                    path(view, beside, request, nested_path)?;
                }
            }
            Some(Request::RequestDeleteRange(_)) | None => {}
        }
    }
    Ok(())
}
