//! Watches: their ranges, filters, ids and ends, progress, and how they resume.

use std::time::Duration;

use dormouse_store::{Limits, Store, server};
use etcd_client::{Client, EventType, WatchFilterType, WatchOptions, WatchResponse, WatchStream};

use super::put_all;
use crate::harness::{Served, created, events, within};

async fn next(stream: &mut WatchStream) -> WatchResponse {
    within(stream.message()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_watch_delivers_until_it_is_cancelled() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut stream = client.watch("key", None).await.unwrap();
    let first = next(&mut stream).await;
    assert!(first.created() && !first.canceled());
    put_all(&mut client, &[("other", ""), ("key", "1")]).await;
    let delivered = next(&mut stream).await;
    assert_eq!(delivered.watch_id(), first.watch_id());
    let [event] = delivered.events() else {
        panic!("{delivered:?}")
    };
    assert_eq!(event.event_type(), EventType::Put);
    assert_eq!(event.kv().unwrap().value_str().unwrap(), "1");
    assert!(event.prev_kv().is_none());
    stream.cancel(first.watch_id()).await.unwrap();
    let ended = next(&mut stream).await;
    assert!(ended.canceled());
    assert_eq!(ended.watch_id(), first.watch_id());
    assert_eq!(ended.compact_revision(), 0);
    // The stream lives on: another watch has the next id.
    stream.watch("key", None).await.unwrap();
    let second = next(&mut stream).await;
    assert!(second.created() && second.watch_id() != first.watch_id());
    client.put("key", "2", None).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), second.watch_id());
    served.stop().await;
}

#[tokio::test]
async fn a_filtered_watch_delivers_the_other_kind_of_event() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let options = || WatchOptions::new().with_prefix().with_start_revision(2);
    let filtered = [
        (WatchFilterType::NoPut, EventType::Delete, vec![4]),
        (WatchFilterType::NoDelete, EventType::Put, vec![2, 3, 5]),
    ];
    put_all(&mut client, &[("a/1", "x"), ("a/2", "x")]).await;
    client.delete("a/1", None).await.unwrap();
    client.put("a/1", "y", None).await.unwrap();
    for (filter, kind, revisions) in filtered {
        let options = options().with_filters([filter]);
        let mut stream = client.watch("a/", Some(options)).await.unwrap();
        created(&mut stream).await;
        let mut seen = Vec::new();
        while seen.len() < revisions.len() {
            for event in next(&mut stream).await.events() {
                assert_eq!(event.event_type(), kind);
                seen.push(event.kv().unwrap().mod_revision());
            }
        }
        assert_eq!(seen, revisions);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_chosen_watch_id_is_kept_and_not_given_twice() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let with_id = |id| Some(WatchOptions::new().with_watch_id(id));
    let mut stream = client.watch("a", with_id(5)).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), 5);
    stream.watch("b", with_id(5)).await.unwrap();
    let refused = next(&mut stream).await;
    assert!(
        refused.canceled() && refused.watch_id() == -1,
        "{refused:?}"
    );
    assert!(!refused.cancel_reason().is_empty());
    client.put("a", "1", None).await.unwrap();
    assert_eq!(next(&mut stream).await.watch_id(), 5);
    served.stop().await;
}

#[tokio::test]
async fn an_idle_watch_is_notified_of_progress_if_it_asks_for_it() {
    let limits = Limits {
        progress_interval: Duration::from_millis(50),
        ..Limits::default()
    };
    let served = Served::with_limits(limits).await;
    let mut client = served.client().await;
    let options = WatchOptions::new().with_progress_notify();
    let mut stream = client.watch("key", Some(options)).await.unwrap();
    created(&mut stream).await;
    put_all(&mut client, &[("other", "1"), ("other", "2")]).await;
    loop {
        let response = next(&mut stream).await;
        assert!(response.events().is_empty() && response.watch_id() == 0);
        if response.header().unwrap().revision() == 3 {
            break;
        }
    }
    client.put("key", "1", None).await.unwrap();
    let revision = loop {
        let response = next(&mut stream).await;
        if let Some(event) = response.events().first() {
            break event.kv().unwrap().mod_revision();
        }
        assert_eq!(response.header().unwrap().revision(), 3);
    };
    assert_eq!(revision, 4);
    served.stop().await;
}

/// Watches a prefix from a revision on.
async fn resume(client: &mut Client, revision: i64) -> WatchStream {
    let options = WatchOptions::new()
        .with_prefix()
        .with_start_revision(revision);
    let mut stream = client.watch("key/", Some(options)).await.unwrap();
    created(&mut stream).await;
    stream
}

#[tokio::test]
async fn a_watch_resumes_after_its_connection_where_it_ended() {
    let store = Store::with_limits(Limits::default());
    let serve = || Served::with_options(store.clone(), server::Options::default());
    let served = serve().await;
    let mut client = served.client().await;
    let mut stream = resume(&mut client, 1).await;
    put_all(&mut client, &[("key/1", "a"), ("key/2", "b")]).await;
    let before = events(&mut stream, 2).await;
    assert_eq!(before, [(2, "a".to_owned()), (3, "b".to_owned())]);
    served.stop().await;
    assert!(!matches!(within(stream.message()).await, Ok(Some(_))));
    let served = serve().await;
    let mut client = served.client().await;
    put_all(
        &mut client,
        &[("key/1", "c"), ("other", ""), ("key/3", "d")],
    )
    .await;
    let mut stream = resume(&mut client, before[1].0 + 1).await;
    assert_eq!(
        events(&mut stream, 2).await,
        [(4, "c".to_owned()), (6, "d".to_owned())]
    );
    stream.request_progress().await.unwrap();
    let progress = next(&mut stream).await;
    assert_eq!((progress.watch_id(), progress.events().len()), (-1, 0));
    assert_eq!(progress.header().unwrap().revision(), 6);
    served.stop().await;
}

#[tokio::test]
async fn a_fragmented_transaction_is_delivered_whole() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let options = WatchOptions::new().with_prefix().with_fragment();
    let mut stream = client.watch("key/", Some(options)).await.unwrap();
    created(&mut stream).await;
    let put = |number| {
        let value = vec![b'v'; 20_000];
        etcd_client::TxnOp::put(format!("key/{number}"), value, None)
    };
    let all: Vec<_> = (0..70).map(put).collect();
    client
        .txn(etcd_client::Txn::new().and_then(all))
        .await
        .unwrap();
    assert_eq!(events(&mut stream, 70).await.len(), 70);
    stream.request_progress().await.unwrap();
    assert_eq!(next(&mut stream).await.header().unwrap().revision(), 2);
    served.stop().await;
}
