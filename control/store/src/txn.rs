//! Requests on the keyspace: a request is validated as a whole, then applied without errors.

mod check;
mod compare;
mod duplicate;

use crate::{
    Error,
    keyspace::{Event, KeyRange, Keyspace, WriteTxn},
    lease::Leases,
    proto::{
        etcdserverpb::{
            DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
            RangeResponse, RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
            request_op::Request, response_op::Response,
        },
        mvccpb::KeyValue,
    },
};

/// Checks the fields of a range request.
pub fn check_range(request: &RangeRequest) -> Result<(), Error> {
    check::range(request)
}

/// Serves a range request.
pub fn range(keyspace: &Keyspace, request: &RangeRequest) -> Result<RangeResponse, Error> {
    check::range(request)?;
    let found = keyspace.range(request)?;
    let strip = |kv: &KeyValue| KeyValue {
        value: bytes::Bytes::new(),
        ..kv.clone()
    };
    let kvs = found.kvs.iter();
    Ok(RangeResponse {
        header: None,
        kvs: if request.keys_only {
            kvs.map(|kv| strip(kv)).collect()
        } else {
            kvs.map(|kv| KeyValue::clone(kv)).collect()
        },
        more: found.more,
        count: found.count,
    })
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

/// Puts one key; the request has passed [`check_put`].
pub fn put(
    keyspace: &mut Keyspace,
    leases: &Leases,
    request: &PutRequest,
) -> Result<(PutResponse, Vec<Event>), Error> {
    check::lease(leases, request)?;
    check::ignore_flags(keyspace, request)?;
    let mut write = keyspace.write();
    let response = apply_put(&mut write, request);
    Ok((response, write.commit()))
}

/// Deletes a range; the request has passed [`check_delete_range`].
pub fn delete_range(
    keyspace: &mut Keyspace,
    request: &DeleteRangeRequest,
) -> (DeleteRangeResponse, Vec<Event>) {
    let mut write = keyspace.write();
    let response = apply_delete(&mut write, request);
    (response, write.commit())
}

/// Runs a transaction; the request has passed [`check_txn`].
pub fn txn(
    keyspace: &mut Keyspace,
    leases: &Leases,
    request: &TxnRequest,
) -> Result<(TxnResponse, Vec<Event>), Error> {
    let path = TxnPath::new(keyspace, request);
    check::path(keyspace, leases, request, &path)?;
    let mut write = keyspace.write();
    let mut response = apply_txn(&mut write, request, &path);
    response.header = None;
    Ok((response, write.commit()))
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
    fn new(keyspace: &Keyspace, request: &TxnRequest) -> Self {
        let succeeded = request
            .compare
            .iter()
            .all(|compare| compare::holds(keyspace, compare));
        let ops = branch(request, succeeded).iter();
        let nested = ops.filter_map(|op| match &op.request {
            Some(Request::RequestTxn(nested)) => Some(Self::new(keyspace, nested)),
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

/// The header of a response inside a transaction: no cluster ID and no member ID.
fn inner_header(write: &WriteTxn<'_>) -> ResponseHeader {
    ResponseHeader {
        revision: write.revision(),
        ..ResponseHeader::default()
    }
}

fn apply_txn(write: &mut WriteTxn<'_>, request: &TxnRequest, path: &TxnPath) -> TxnResponse {
    let mut nested_paths = path.nested.iter();
    let mut responses = Vec::new();
    for op in branch(request, path.succeeded) {
        let response = match &op.request {
            Some(Request::RequestRange(inner)) => {
                range(write.keyspace(), inner).ok().map(|mut r| {
                    r.header = Some(inner_header(write));
                    Response::ResponseRange(r)
                })
            }
            Some(Request::RequestPut(inner)) => {
                let mut response = apply_put(write, inner);
                response.header = Some(inner_header(write));
                Some(Response::ResponsePut(response))
            }
            Some(Request::RequestDeleteRange(inner)) => {
                let mut response = apply_delete(write, inner);
                response.header = Some(inner_header(write));
                Some(Response::ResponseDeleteRange(response))
            }
            Some(Request::RequestTxn(inner)) => nested_paths
                .next()
                .map(|path| Response::ResponseTxn(apply_txn(write, inner, path))),
            None => None,
        };
        responses.push(ResponseOp { response });
    }
    let header = Some(ResponseHeader::default());
    TxnResponse {
        header,
        succeeded: path.succeeded,
        responses,
    }
}

fn apply_put(write: &mut WriteTxn<'_>, request: &PutRequest) -> PutResponse {
    let (mut value, mut lease) = (request.value.clone(), request.lease);
    if let Some(prev) = write.keyspace().latest(&request.key) {
        if request.ignore_value {
            value = prev.value.clone();
        }
        if request.ignore_lease {
            lease = prev.lease;
        }
    }
    let prev = write
        .put(&request.key, &value, lease)
        .filter(|_| request.prev_kv);
    PutResponse {
        header: None,
        prev_kv: prev.map(|kv| KeyValue::clone(&kv)),
    }
}

fn apply_delete(write: &mut WriteTxn<'_>, request: &DeleteRangeRequest) -> DeleteRangeResponse {
    let deleted = write.delete(&KeyRange::new(&request.key, &request.range_end));
    let prev_kvs = deleted
        .iter()
        .filter(|_| request.prev_kv)
        .map(|kv| KeyValue::clone(kv));
    DeleteRangeResponse {
        header: None,
        deleted: i64::try_from(deleted.len()).unwrap_or(i64::MAX),
        prev_kvs: prev_kvs.collect(),
    }
}
