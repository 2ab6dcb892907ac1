//! The bytes that a request may add to the store, estimated before it runs as in etcd. Pure.

use crate::proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest, request_op::Request};

/// Bytes of a version besides key and value, in the estimate.
const VERSION_BYTES: u64 = 256;

/// Bytes that a lease counts.
pub const LEASE_BYTES: u64 = 64;

/// Bytes that a put may add.
pub fn put(request: &PutRequest) -> u64 {
    VERSION_BYTES + request.key.len() as u64 + request.value.len() as u64
}

/// Bytes that a transaction may add: those of the larger branch. As in etcd, nested transactions
/// are not examined.
pub fn txn(request: &TxnRequest) -> u64 {
    branch(&request.success).max(branch(&request.failure))
}

fn branch(ops: &[RequestOp]) -> u64 {
    let puts = ops.iter().filter_map(|op| match &op.request {
        Some(Request::RequestPut(request)) => Some(put(request)),
        _ => None,
    });
    puts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(request: Request) -> RequestOp {
        RequestOp {
            request: Some(request),
        }
    }

    #[test]
    fn a_transaction_costs_its_larger_branch_without_nested_puts() {
        let request = PutRequest {
            key: "key".into(),
            value: "value".into(),
            ..PutRequest::default()
        };
        let cost = put(&request);
        assert_eq!(cost, VERSION_BYTES + 8);
        let one = op(Request::RequestPut(request));
        let nested = TxnRequest {
            success: vec![one.clone()],
            ..TxnRequest::default()
        };
        let nested = op(Request::RequestTxn(nested));
        let txn_of = |success, failure| TxnRequest {
            compare: Vec::new(),
            success,
            failure,
        };
        let larger = txn_of(vec![one.clone()], vec![one.clone(), one]);
        assert_eq!(txn(&larger), 2 * cost);
        assert_eq!(txn(&txn_of(vec![nested], Vec::new())), 0);
    }
}
