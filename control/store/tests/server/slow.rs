//! Slow watchers: a client that does not read its stream delays no write and no other watcher.

use etcd_client::{PutOptions, WatchOptions};
use futures::future::join_all;

use crate::harness::{Served, created, events, within};

const VALUE_BYTES: usize = 4_096;

fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_watcher_stalls_neither_writers_nor_other_watchers() {
    const WRITES: i64 = 4_000;
    let served = Served::start().await;
    let mut stuck_client = served.client().await;
    let all = || Some(WatchOptions::new().with_all_keys());
    let mut stuck = stuck_client.watch("", all()).await.unwrap();
    created(&mut stuck).await;
    let clients = join_all((0..20).map(|_| served.client())).await;
    let mut readers = Vec::new();
    for mut client in clients {
        let mut stream = client.watch("", all()).await.unwrap();
        created(&mut stream).await;
        // The task owns the client: dropping it closes the connection.
        readers.push(tokio::spawn(async move {
            let got = events(&mut stream, usize::try_from(WRITES).unwrap()).await;
            drop(client);
            got.into_iter().map(|event| event.0).collect::<Vec<_>>()
        }));
    }
    let mut client = served.client().await;
    for _ in 0..WRITES {
        within(client.put("key", value(), Some(PutOptions::new())))
            .await
            .unwrap();
    }
    let wanted: Vec<i64> = (2..WRITES + 2).collect();
    for reader in readers {
        assert_eq!(within(reader).await.unwrap(), wanted);
    }
    // Its events were not queued: when it reads, they come from the event log, without a gap.
    let late = events(&mut stuck, wanted.len()).await;
    assert_eq!(
        late.into_iter().map(|event| event.0).collect::<Vec<_>>(),
        wanted
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_overtaken_by_compaction_is_canceled_with_the_compacted_revision() {
    let served = Served::start().await;
    let mut stuck_client = served.client().await;
    let mut stuck = stuck_client.watch("key", None).await.unwrap();
    created(&mut stuck).await;
    let store = served.store.clone();
    let request = dormouse_store::proto::etcdserverpb::PutRequest {
        key: "key".into(),
        value: value().into(),
        ..Default::default()
    };
    for _ in 0..20_000 {
        store.put(&request).await.unwrap();
    }
    let compacted = store.revision();
    store.compact(compacted, true).await.unwrap();
    let mut last = 1;
    let end = loop {
        let response = within(stuck.message()).await.unwrap().unwrap();
        if response.canceled() {
            break response;
        }
        for event in response.events() {
            let revision = event.kv().unwrap().mod_revision();
            assert_eq!(revision, last + 1, "a gap before the cancellation");
            last = revision;
        }
    };
    assert_eq!(end.compact_revision(), compacted);
    assert!(last < compacted);
    served.stop().await;
}
