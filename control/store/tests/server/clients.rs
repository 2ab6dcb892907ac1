//! The `etcd-client` crate against the server: the calls that Dormouse's other packages make.

use std::time::Duration;

use dormouse_store::Limits;
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Compare, CompareOp, DeleteOptions, Error, EventType,
    GetOptions, PutOptions, Txn, TxnOp, WatchOptions,
};
use prometheus_client::{encoding::text, registry::Registry};

use crate::harness::{Served, created, events, until, within};

#[tokio::test]
async fn keys_are_put_read_listed_and_deleted() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for name in ["a", "b", "c"] {
        client
            .put(format!("/registry/pods/{name}"), name, None)
            .await
            .unwrap();
    }
    let options = GetOptions::new().with_prefix().with_limit(2);
    let page = client.get("/registry/pods/", Some(options)).await.unwrap();
    assert_eq!((page.kvs().len(), page.more(), page.count()), (2, true, 3));
    let options = DeleteOptions::new().with_prefix().with_prev_key();
    let gone = client.delete("/registry/", Some(options)).await.unwrap();
    assert_eq!((gone.deleted(), gone.prev_kvs().len()), (3, 3));
    assert_eq!(gone.header().unwrap().revision(), 5);
    let old = GetOptions::new()
        .with_revision(4)
        .with_prefix()
        .with_count_only();
    assert_eq!(
        client.get("/registry/", Some(old)).await.unwrap().count(),
        3
    );
    served.stop().await;
}

#[tokio::test]
async fn an_update_with_an_outdated_mod_revision_changes_nothing() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let update = |revision: i64, value: &str| {
        let unchanged = Compare::mod_revision("key", CompareOp::Equal, revision);
        Txn::new()
            .when([unchanged])
            .and_then([TxnOp::put("key", value, None)])
            .or_else([TxnOp::get("key", None)])
    };
    assert!(client.txn(update(0, "first")).await.unwrap().succeeded());
    assert!(!client.txn(update(0, "late")).await.unwrap().succeeded());
    assert!(client.txn(update(2, "second")).await.unwrap().succeeded());
    let read = client.get("key", None).await.unwrap();
    assert_eq!(read.kvs()[0].value(), b"second");
    assert_eq!(read.kvs()[0].version(), 2);
    served.stop().await;
}

#[tokio::test]
async fn a_watch_from_the_revision_of_a_list_misses_no_event() {
    let served = Served::start().await;
    let mut client = served.client().await;
    client.put("app/1", "old", None).await.unwrap();
    let listed = client
        .get("app/", Some(GetOptions::new().with_prefix()))
        .await
        .unwrap();
    let next = listed.header().unwrap().revision() + 1;
    client.put("app/1", "new", None).await.unwrap();
    client.delete("app/1", None).await.unwrap();
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(next)
        .with_prev_key();
    let mut stream = client.watch("app/", Some(options)).await.unwrap();
    created(&mut stream).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let response = within(stream.message()).await.unwrap().unwrap();
        for event in response.events() {
            let prev = event.prev_kv().unwrap().value().to_vec();
            seen.push((event.event_type(), prev));
        }
    }
    assert_eq!(
        seen,
        [
            (EventType::Put, b"old".to_vec()),
            (EventType::Delete, b"new".to_vec())
        ]
    );
    served.stop().await;
}

#[tokio::test]
async fn an_expired_lease_deletes_its_keys_and_a_kept_alive_lease_does_not() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let renewed = client.lease_grant(2, None).await.unwrap().id();
    let expiring = client.lease_grant(2, None).await.unwrap().id();
    for (key, lease) in [("renewed", renewed), ("expiring", expiring)] {
        client
            .put(key, "", Some(PutOptions::new().with_lease(lease)))
            .await
            .unwrap();
    }
    let (mut keeper, mut responses) = client.lease_keep_alive(renewed).await.unwrap();
    until("the lease deletes its key", async || {
        keeper.keep_alive().await.unwrap();
        assert_eq!(within(responses.message()).await.unwrap().unwrap().ttl(), 2);
        client.get("expiring", None).await.unwrap().count() == 0
    })
    .await;
    assert_eq!(client.get("renewed", None).await.unwrap().count(), 1);
    let leases = client.leases().await.unwrap();
    assert_eq!(leases.leases().len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn a_watch_below_the_compacted_revision_is_canceled_with_that_revision() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for value in ["1", "2", "3"] {
        client.put("key", value, None).await.unwrap();
    }
    client.compact(4, None).await.unwrap();
    let options = WatchOptions::new().with_start_revision(2);
    let mut stream = client.watch("key", Some(options)).await.unwrap();
    created(&mut stream).await;
    let canceled = within(stream.message()).await.unwrap().unwrap();
    assert!(canceled.canceled());
    assert_eq!(canceled.compact_revision(), 4);
    served.stop().await;
}

#[tokio::test]
async fn a_progress_response_follows_every_event_up_to_its_revision() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut stream = client.watch("key", None).await.unwrap();
    created(&mut stream).await;
    for round in 0..50 {
        client.put("key", "x", None).await.unwrap();
        client.put("other", "x", None).await.unwrap();
        stream.request_progress().await.unwrap();
        let mut newest = 0;
        loop {
            let response = within(stream.message()).await.unwrap().unwrap();
            match response.events().last() {
                Some(event) => newest = event.kv().unwrap().mod_revision(),
                None => break assert_eq!(response.header().unwrap().revision(), newest + 1),
            }
        }
        assert_eq!(newest, 2 + 2 * round);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_store_at_its_quota_refuses_puts_until_it_is_compacted_and_the_alarm_disarmed() {
    let limits = Limits {
        quota_bytes: 100_000,
        ..Limits::default()
    };
    let served = Served::with_limits(limits).await;
    let mut client = served.client().await;
    let value = vec![b'v'; 10_000];
    let refusal = loop {
        if let Err(Error::GRpcStatus(refusal)) = client.put("key", value.clone(), None).await {
            break refusal;
        }
    };
    assert_eq!(
        refusal.message(),
        "etcdserver: mvcc: database space exceeded"
    );
    let read = client.get("key", None).await.unwrap();
    client
        .compact(read.header().unwrap().revision(), None)
        .await
        .unwrap();
    client.put("key", "v", None).await.unwrap_err();
    let alarms = client
        .alarm(AlarmAction::Get, AlarmType::Nospace, None)
        .await
        .unwrap();
    let raised = alarms.alarms()[0].member_id();
    let mut disarm = AlarmOptions::new();
    disarm.with_member(raised);
    client
        .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(disarm))
        .await
        .unwrap();
    client.put("key", value, None).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_open_streams() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut stream = client.watch("key", None).await.unwrap();
    created(&mut stream).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let (_keeper, mut responses) = client.lease_keep_alive(lease).await.unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(5), served.stop());
    stopped.await.expect("a stream blocked the shutdown");
    assert!(!matches!(within(stream.message()).await, Ok(Some(_))));
    while let Ok(Some(_)) = within(responses.message()).await {}
}

#[tokio::test]
async fn the_watchers_of_a_closed_connection_are_removed() {
    let served = Served::start().await;
    let mut registry = Registry::default();
    served.store.register(&mut registry);
    let metric = |name: &str| {
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        let line = page
            .lines()
            .find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
            .split(' ')
            .nth(1)
            .unwrap()
            .to_owned()
    };
    let mut client = served.client().await;
    client.put("key", "", None).await.unwrap();
    let mut watcher = served.client().await;
    let mut stream = watcher.watch("key", None).await.unwrap();
    created(&mut stream).await;
    assert_eq!(metric("etcd_debugging_mvcc_watcher_total"), "1");
    drop((stream, watcher));
    until("the watcher is removed", async || {
        metric("etcd_debugging_mvcc_watcher_total") == "0"
    })
    .await;
    assert_eq!(metric("etcd_mvcc_put_total"), "1");
    assert_eq!(metric("etcd_debugging_mvcc_keys_total"), "1");
    assert_eq!(metric("etcd_debugging_mvcc_current_revision"), "2");
    served.stop().await;
}

#[tokio::test]
async fn many_watchers_share_one_stream() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut stream = client.watch("key/0", None).await.unwrap();
    for number in 1..200 {
        stream.watch(format!("key/{number}"), None).await.unwrap();
    }
    for _ in 0..200 {
        created(&mut stream).await;
    }
    for number in 0..200 {
        client
            .put(format!("key/{number}"), "x", None)
            .await
            .unwrap();
    }
    let mut revisions: Vec<i64> = events(&mut stream, 200).await.iter().map(|e| e.0).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (2..202).collect::<Vec<_>>());
    served.stop().await;
}

#[tokio::test]
async fn a_write_may_be_as_large_as_the_limit_permits() {
    const BYTES: usize = 24 << 20;
    for request_bytes_max in [BYTES + 100, usize::MAX] {
        let served = Served::with_limits(Limits {
            request_bytes_max,
            ..Limits::default()
        })
        .await;
        let mut client = served.client().await;
        client.put("key", vec![b'v'; BYTES], None).await.unwrap();
        let above = client.put("key", vec![b'v'; BYTES + 100], None).await;
        assert_eq!(above.is_ok(), request_bytes_max == usize::MAX);
        served.stop().await;
    }
}
