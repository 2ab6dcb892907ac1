//! Transactions whose keys have several modes.

use super::*;
use crate::proto::etcdserverpb::{RequestOp, TxnRequest, request_op::Request};

fn put_op(key: &str) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestPut(put_of(key, "1", 0))),
    }
}

#[tokio::test]
async fn a_transaction_takes_the_strictest_mode_of_its_keys() {
    let directory = directory();
    let store = open(directory.path());
    let request = TxnRequest {
        success: vec![put_op("a"), put_op(LEASES)],
        ..TxnRequest::default()
    };
    store.txn(&request).await.unwrap();
    put(&store, "/registry/leases/b", "1").await;
    store.compact(store.revision(), true).await.unwrap();
    store
        .snapshot(store.shared.journal.as_ref().unwrap())
        .unwrap();
    drop(store);
    // From the snapshot, twice.
    for _ in 0..2 {
        let store = open(directory.path());
        let pairs = range(&store, ALL, 0).await.unwrap();
        let keys: Vec<_> = pairs.iter().map(|pair| pair.fields().key).collect();
        assert_eq!(keys, [LEASES.as_bytes(), b"a"]);
        store.compact(store.revision(), true).await.unwrap();
        store
            .snapshot(store.shared.journal.as_ref().unwrap())
            .unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_forgets_the_mixed_revisions_of_which_it_has_no_key() {
    let directory = directory();
    let store = open(directory.path());
    for _ in 0..3 {
        let request = TxnRequest {
            success: vec![put_op("a"), put_op(LEASES)],
            ..TxnRequest::default()
        };
        store.txn(&request).await.unwrap();
    }
    let journal = store.shared.journal.as_ref().unwrap();
    let current = store.revision();
    assert_eq!(journal.mixed(), [current - 2, current - 1, current]);
    store.compact(current - 1, true).await.unwrap();
    store.snapshot(journal).unwrap();
    assert_eq!(journal.mixed(), [current - 1, current]);
}

#[tokio::test]
async fn a_lost_range_refuses_a_transaction_only_on_the_branch_that_reads_it() {
    let directory = directory();
    let store = open(directory.path());
    let before = put(&store, "a", "1").await;
    store.close().unwrap();
    drop(store);
    let store = open(directory.path());
    let lost = RequestOp {
        request: Some(Request::RequestRange(RangeRequest {
            key: Bytes::from_static(LEASES.as_bytes()),
            revision: before,
            ..RangeRequest::default()
        })),
    };
    // Without a compare, a transaction succeeds.
    for other in [Vec::new(), vec![put_op("a")]] {
        let not_taken = TxnRequest {
            success: other.clone(),
            failure: vec![lost.clone()],
            ..TxnRequest::default()
        };
        assert!(store.txn(&not_taken).await.unwrap().succeeded);
        let taken = TxnRequest {
            success: vec![lost.clone()],
            failure: other,
            ..TxnRequest::default()
        };
        assert_eq!(store.txn(&taken).await, Err(Error::Compacted));
    }
}
