//! Two servers that compact in turn: the one whose comparison of a key's version holds does.

use etcd_client::{
    Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchStream,
};

use super::storage::Storage;
use crate::{
    harness::{Served, created, events},
    services::refusal,
};

/// The key whose version counts the compactions.
const KEY: &str = "compact_rev_key";

/// A server's view: the version of the key that it expects, and the revision to compact at.
struct Compactor {
    storage: Storage,
    time: i64,
    revision: i64,
}

impl Compactor {
    async fn new(served: &Served) -> Self {
        let client = served.client().await;
        Self {
            storage: Storage { client },
            time: 0,
            revision: 0,
        }
    }

    /// One interval; returns the revision that was compacted at.
    async fn turn(&mut self) -> Option<i64> {
        let txn = Txn::new()
            .when([Compare::version(KEY, CompareOp::Equal, self.time)])
            .and_then([TxnOp::put(KEY, self.revision.to_string(), None)])
            .or_else([TxnOp::get(KEY, None)]);
        let answered = self.storage.client.txn(txn).await.unwrap();
        let now = answered.header().unwrap().revision();
        let compacted = std::mem::replace(&mut self.revision, now);
        if let Some(TxnOpResponse::Get(read)) = answered.op_responses().first() {
            self.time = read.kvs()[0].version();
            return None;
        }
        self.time += 1;
        if compacted == 0 {
            return None;
        }
        self.storage.client.compact(compacted, None).await.unwrap();
        Some(compacted)
    }
}

#[tokio::test]
async fn one_of_two_servers_compacts_and_the_other_one_takes_over() {
    let served = Served::start().await;
    let mut one = Compactor::new(&served).await;
    let mut other = Compactor::new(&served).await;
    let mut client = served.client().await;
    // The first turns only learn.
    assert_eq!((one.turn().await, other.turn().await), (None, None));
    let mut compacted = Vec::new();
    for value in ["1", "2", "3"] {
        client.put("/registry/a", value, None).await.unwrap();
        compacted.push(one.turn().await.unwrap());
        assert_eq!(other.turn().await, None, "both servers compacted");
    }
    // Each turn compacts at the revision of the turn before.
    assert_eq!(compacted, [2, 4, 6]);
    client.put("/registry/a", "4", None).await.unwrap();
    assert_eq!(other.turn().await, Some(8));
    assert_eq!(one.turn().await, None);
    let recorded = client.get(KEY, None).await.unwrap();
    assert_eq!(recorded.kvs()[0].value(), b"8");
    served.stop().await;
}

/// Watches the key from the revision of a read on, which is that of its last write or later.
async fn watch_key(client: &mut Client) -> WatchStream {
    let read = client.get(KEY, None).await.unwrap();
    let revision = read.header().unwrap().revision();
    let options = WatchOptions::new().with_start_revision(revision);
    let mut stream = client.watch(KEY, Some(options)).await.unwrap();
    created(&mut stream).await;
    stream
}

#[tokio::test]
async fn a_server_learns_of_each_compaction_by_a_watch_of_the_key() {
    let served = Served::start().await;
    let mut client = served.client().await;
    let mut compactor = Compactor::new(&served).await;
    let mut stream = watch_key(&mut client).await;
    compactor.turn().await;
    for compacted in [2, 4] {
        client.put("/registry/a", "", None).await.unwrap();
        assert_eq!(compactor.turn().await, Some(compacted));
    }
    let wanted = [(2, "0"), (4, "2"), (6, "4")].map(|(at, value)| (at, value.to_owned()));
    assert_eq!(events(&mut stream, 3).await, wanted);
    // A server that starts now reads the key, and its watch delivers that state again.
    let mut late = watch_key(&mut client).await;
    assert_eq!(events(&mut late, 1).await, wanted[2..]);
    served.stop().await;
}

#[tokio::test]
async fn a_compaction_below_the_last_one_is_refused_and_changes_nothing() {
    let served = Served::start().await;
    let mut storage = Storage {
        client: served.client().await,
    };
    let mut revision = 0;
    for number in 0..20 {
        let key = format!("/registry/a/{}", number % 3);
        let expected = storage
            .get(&key)
            .await
            .0
            .map_or(0, |object| object.revision);
        revision = storage.put(&key, "x", expected, 0).await.revision();
    }
    let before = storage.list("/registry/a/", 500).await;
    storage.client.compact(revision - 1, None).await.unwrap();
    for at in [1, revision - 2, revision - 1] {
        assert_eq!(
            refusal(storage.client.compact(at, None).await).0,
            "OutOfRange"
        );
    }
    assert_eq!(storage.list("/registry/a/", 500).await, before);
    let old = Some((revision - 1, "/registry/a/".to_owned()));
    let page = storage.page("/registry/a/", 500, old).await.unwrap();
    assert_eq!(page.objects.len(), 3);
    served.stop().await;
}
