//! The operations of a checked transaction that only reads, on a view.

use super::{TxnPath, branch};
use crate::{
    keyspace::View,
    proto::etcdserverpb::{
        RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse, request_op::Request,
        response_op::Response,
    },
};

pub(super) fn txn(view: View<'_>, request: &TxnRequest, path: &TxnPath) -> TxnResponse {
    let mut nested = path.nested.iter();
    let ops = branch(request, path.succeeded).iter();
    let responses = ops.map(|op| ResponseOp {
        response: operation(view, op, &mut nested),
    });
    TxnResponse {
        responses: responses.collect(),
        header: Some(ResponseHeader::default()),
        succeeded: path.succeeded,
    }
}

fn operation<'a>(
    view: View<'_>,
    op: &RequestOp,
    nested: &mut impl Iterator<Item = &'a TxnPath>,
) -> Option<Response> {
    match op.request.as_ref()? {
        Request::RequestRange(request) => {
            let mut response = super::range(view, request).ok()?;
            response.header = Some(ResponseHeader {
                revision: view.revision(),
                ..ResponseHeader::default()
            });
            Some(Response::ResponseRange(response))
        }
        Request::RequestTxn(request) => {
            Some(Response::ResponseTxn(txn(view, request, nested.next()?)))
        }
        Request::RequestPut(_) | Request::RequestDeleteRange(_) => None,
    }
}
