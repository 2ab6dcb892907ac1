//! Transactions: what they compare, and what their branches answer.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
};

use super::{put_all, texts};
use crate::{harness::Served, services::refusal};

#[tokio::test]
async fn a_transaction_takes_the_branch_that_its_comparison_selects() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("key", "1", None).await.unwrap();
    let exchange = || {
        let previous = PutOptions::new().with_prev_key();
        Txn::new()
            .when([Compare::value("key", CompareOp::Equal, "1")])
            .and_then([TxnOp::put("key", "2", Some(previous))])
            .or_else([TxnOp::get("key", None)])
    };
    let first = client.txn(exchange()).await.unwrap();
    assert!(first.succeeded());
    let responses = first.op_responses();
    let [TxnOpResponse::Put(put)] = responses.as_slice() else {
        panic!("{first:?}")
    };
    assert_eq!(put.prev_key().unwrap().value_str().unwrap(), "1");
    let second = client.txn(exchange()).await.unwrap();
    assert!(!second.succeeded());
    let responses = second.op_responses();
    let [TxnOpResponse::Get(read)] = responses.as_slice() else {
        panic!("{second:?}")
    };
    assert_eq!(texts(read.kvs()), [("key", "2")]);
    // The second one wrote nothing.
    assert_eq!(
        second.header().unwrap().revision(),
        first.header().unwrap().revision()
    );
    served.stop().await;
}

#[tokio::test]
async fn each_target_and_operator_of_a_comparison_is_evaluated() {
    use CompareOp::{Equal, Greater, Less, NotEqual};
    let served = Served::start().await;
    let mut client = served.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let leased = PutOptions::new().with_lease(lease);
    put_all(&mut client, &[("a", "1"), ("a", "2"), ("b", "2")]).await;
    client.put("b", "3", Some(leased)).await.unwrap();
    for (compare, holds) in [
        (Compare::value("a", Equal, "2"), true),
        (Compare::value("a", Less, "2"), false),
        (Compare::value("a", Greater, "1"), true),
        (Compare::value("missing", NotEqual, "1"), false),
        (Compare::version("a", Equal, 2), true),
        (Compare::version("missing", Equal, 0), true),
        (Compare::create_revision("a", Equal, 2), true),
        (Compare::mod_revision("a", Greater, 2), true),
        (Compare::mod_revision("a", NotEqual, 3), false),
        (Compare::lease("b", Equal, lease), true),
        (Compare::lease("a", Equal, 0), true),
        (Compare::version("a", Equal, 2).with_range("c"), true),
        (Compare::lease("a", Equal, 0).with_range("c"), false),
        (Compare::value("a", Greater, "1").with_prefix(), true),
    ] {
        let txn = Txn::new().when([compare.clone()]);
        let answered = client.txn(txn).await.unwrap();
        assert_eq!(answered.succeeded(), holds, "{compare:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn nested_transactions_and_deletions_answer_in_order() {
    let served = Served::start().await;
    let mut client = served.client().await;
    put_all(&mut client, &[("a", "1"), ("b", "2")]).await;
    let inner = Txn::new()
        .when([Compare::version("a", CompareOp::Equal, 0)])
        .and_then([TxnOp::put("never", "", None)])
        .or_else([TxnOp::get("", Some(GetOptions::new().with_all_keys()))]);
    let previous = DeleteOptions::new().with_prev_key();
    let outer = Txn::new().and_then([
        TxnOp::delete("a", Some(previous)),
        TxnOp::put("c", "3", None),
        TxnOp::txn(inner),
    ]);
    let answered = client.txn(outer).await.unwrap();
    let responses = answered.op_responses();
    let [
        TxnOpResponse::Delete(deleted),
        TxnOpResponse::Put(_),
        TxnOpResponse::Txn(inner),
    ] = responses.as_slice()
    else {
        panic!("{answered:?}")
    };
    assert_eq!(texts(deleted.prev_kvs()), [("a", "1")]);
    // The comparison saw the state before the transaction, the read the state within.
    assert!(!inner.succeeded());
    let responses = inner.op_responses();
    let [TxnOpResponse::Get(read)] = responses.as_slice() else {
        panic!("{inner:?}")
    };
    assert_eq!(texts(read.kvs()), [("b", "2"), ("c", "3")]);
    served.stop().await;
}

#[tokio::test]
async fn a_transaction_that_is_refused_changes_nothing() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let unknown = PutOptions::new().with_lease(77);
    for (operations, code) in [
        (
            vec![TxnOp::put("a", "1", None), TxnOp::put("a", "2", None)],
            "InvalidArgument",
        ),
        (
            vec![TxnOp::put("a", "1", None), TxnOp::delete("a", None)],
            "InvalidArgument",
        ),
        (
            vec![
                TxnOp::put("a", "1", None),
                TxnOp::put("b", "1", Some(unknown)),
            ],
            "NotFound",
        ),
        (
            (0..129)
                .map(|n| TxnOp::put(format!("a{n}"), "", None))
                .collect(),
            "InvalidArgument",
        ),
    ] {
        let refused = refusal(client.txn(Txn::new().and_then(operations)).await);
        assert_eq!(refused.0, code, "{refused:?}");
    }
    let all = GetOptions::new().with_all_keys();
    let read = client.get("", Some(all)).await.unwrap();
    assert_eq!((read.count(), read.header().unwrap().revision()), (0, 1));
    served.stop().await;
}
