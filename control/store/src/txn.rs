//! Requests on the keyspace: a request is validated as a whole, then applied without errors.

mod apply;
mod check;
mod compare;
mod duplicate;
mod read;

use crate::{
    Error,
    durable::Lost,
    keyspace::{Keyspace, RangeResult, View},
    lease::Leases,
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
        RangeResponse, RequestOp, TxnRequest, TxnResponse, request_op::Request,
    },
};
pub use read::ReadTxn;

/// The state beside the keyspace that a transaction is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside<'a> {
    /// The leases that a put may name.
    pub(crate) leases: &'a Leases,
    /// The history that a read may not use.
    pub(crate) lost: &'a Lost,
}

/// Checks the fields of a range request.
pub fn check_range(request: &RangeRequest) -> Result<(), Error> {
    check::range(request)
}

/// Checks the fields of a put.
pub fn check_put(request: &PutRequest) -> Result<(), Error> {
    check::put(request)
}

/// Checks the fields of a delete.
pub fn check_delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    check::delete_range(request)
}

/// Checks the fields of a transaction, whose lists have at most `ops_max` entries each, and that no
/// key is written twice.
pub fn check_txn(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    check::txn(request, ops_max)?;
    duplicate::check(&request.success)?;
    duplicate::check(&request.failure)
}

/// Serves a range request; it has passed [`check_range`].
pub fn range(view: View<'_>, request: &RangeRequest) -> Result<RangeResponse, Error> {
    Ok(view.range(request)?.into())
}

impl From<RangeResult> for RangeResponse {
    fn from(found: RangeResult) -> Self {
        Self {
            header: None,
            kvs: found.pairs.messages().collect(),
            more: found.more,
            count: found.count,
        }
    }
}

/// Puts one key; the request has passed [`check_put`].
pub fn put(
    keyspace: &mut Keyspace,
    leases: &Leases,
    request: &PutRequest,
) -> Result<PutResponse, Error> {
    check::lease(leases, request)?;
    check::ignore_flags(keyspace.now(), request)?;
    let mut write = keyspace.write();
    let response = apply::put(&mut write, request);
    write.commit();
    Ok(response)
}

/// Deletes a range; the request has passed [`check_delete_range`].
pub fn delete_range(keyspace: &mut Keyspace, request: &DeleteRangeRequest) -> DeleteRangeResponse {
    let mut write = keyspace.write();
    let response = apply::delete(&mut write, request);
    write.commit();
    response
}

/// Runs a transaction; the request has passed [`check_txn`].
pub(crate) fn txn(
    keyspace: &mut Keyspace,
    beside: Beside<'_>,
    request: &TxnRequest,
) -> Result<TxnResponse, Error> {
    let path = TxnPath::new(keyspace.now(), request);
    check::path(keyspace.now(), beside, request, &path)?;
    let mut write = keyspace.write();
    let mut response = apply::txn(&mut write, request, &path);
    write.commit();
    response.header = None;
    Ok(response)
}

/// Whether a transaction only reads; the size limit of writes does not apply to it.
pub fn is_read_only(request: &TxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .all(|op| match &op.request {
            Some(Request::RequestRange(_)) => true,
            Some(Request::RequestTxn(nested)) => is_read_only(nested),
            _ => false,
        })
}

/// The branch that a transaction takes, with the paths of the nested transactions of that branch in
/// order. All compares are evaluated on the state before the transaction.
#[derive(Debug)]
struct TxnPath {
    succeeded: bool,
    nested: Vec<TxnPath>,
}

impl TxnPath {
    fn new(view: View<'_>, request: &TxnRequest) -> Self {
        let succeeded = request
            .compare
            .iter()
            .all(|compare| compare::holds(view, compare));
        let ops = branch(request, succeeded).iter();
        let nested = ops.filter_map(|op| match &op.request {
            Some(Request::RequestTxn(nested)) => Some(Self::new(view, nested)),
            _ => None,
        });
        Self {
            succeeded,
            nested: nested.collect(),
        }
    }
}

fn branch(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded {
        &request.success
    } else {
        &request.failure
    }
}
