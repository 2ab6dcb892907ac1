//! The operations of a checked transaction on its open write transaction; none of them fails.

use super::{TxnPath, branch};
use crate::{
    keyspace::{Found, KeyRange, Put, WriteTxn},
    proto::etcdserverpb::{
        DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RequestOp,
        ResponseHeader, ResponseOp, TxnRequest, TxnResponse, request_op::Request,
        response_op::Response,
    },
};

/// The header of a response inside a transaction: no cluster ID and no member ID.
fn inner_header(write: &WriteTxn<'_>) -> ResponseHeader {
    ResponseHeader {
        revision: write.revision(),
        ..ResponseHeader::default()
    }
}

pub(super) fn txn(write: &mut WriteTxn<'_>, request: &TxnRequest, path: &TxnPath) -> TxnResponse {
    let mut nested = path.nested.iter();
    let ops = branch(request, path.succeeded).iter();
    let responses = ops.map(|op| ResponseOp {
        response: operation(write, op, &mut nested),
    });
    TxnResponse {
        responses: responses.collect(),
        header: Some(ResponseHeader::default()),
        succeeded: path.succeeded,
    }
}

fn operation<'a>(
    write: &mut WriteTxn<'_>,
    op: &RequestOp,
    nested: &mut impl Iterator<Item = &'a TxnPath>,
) -> Option<Response> {
    Some(match op.request.as_ref()? {
        Request::RequestRange(request) => {
            let mut response = super::range(write.view(), request).ok()?;
            response.header = Some(inner_header(write));
            Response::ResponseRange(response)
        }
        Request::RequestPut(request) => {
            let mut response = put(write, request);
            response.header = Some(inner_header(write));
            Response::ResponsePut(response)
        }
        Request::RequestDeleteRange(request) => {
            let mut response = delete(write, request);
            response.header = Some(inner_header(write));
            Response::ResponseDeleteRange(response)
        }
        Request::RequestTxn(request) => Response::ResponseTxn(txn(write, request, nested.next()?)),
    })
}

pub(super) fn put(write: &mut WriteTxn<'_>, request: &PutRequest) -> PutResponse {
    let (mut value, mut lease) = (request.value.clone(), request.lease);
    let mut prev_kv = None;
    if (request.ignore_value || request.ignore_lease || request.prev_kv)
        && let Some(prev) = write.view().get(&request.key)
    {
        let fields = prev.fields();
        if request.ignore_value {
            value = bytes::Bytes::copy_from_slice(fields.value);
        }
        if request.ignore_lease {
            lease = fields.lease;
        }
        prev_kv = request.prev_kv.then(|| prev.encode());
    }
    write.put(Put {
        key: &request.key,
        value: &value,
        lease,
    });
    PutResponse {
        header: None,
        prev_kv,
    }
}

pub(super) fn delete(
    write: &mut WriteTxn<'_>,
    request: &DeleteRangeRequest,
) -> DeleteRangeResponse {
    let range = KeyRange::new(&request.key, &request.range_end);
    let prev_kvs = if request.prev_kv {
        write.view().scan(&range).map(Found::encode).collect()
    } else {
        Vec::new()
    };
    DeleteRangeResponse {
        header: None,
        deleted: i64::try_from(write.delete(&range)).unwrap_or(i64::MAX),
        prev_kvs,
    }
}
