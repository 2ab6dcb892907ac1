//! kill -9 in mode `buffered`: what is lost are the last writes, and the loss is not hidden.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use dormouse_store_checker::{
    process::StoreProcess,
    wait::{until, within},
};
use etcd_client::{Client, GetOptions, ResponseHeader};
use tempfile::TempDir;

use crate::{SMALL_SEGMENTS, connect, start};

const ROUNDS: usize = 20;
const CLIENTS: usize = 4;

/// A key of one client, with a number that rises with each put.
fn key(client: usize) -> String {
    format!("count/{client}")
}

/// An acknowledged put.
#[derive(Clone, Copy, Debug)]
struct Put {
    client: usize,
    number: usize,
    revision: i64,
}

/// Puts rising numbers until the store is killed.
async fn count(mut store: Client, client: usize, puts: Arc<AtomicUsize>) -> Vec<Put> {
    let mut acknowledged = Vec::new();
    for number in 1.. {
        let Ok(put) = store.put(key(client), number.to_string(), None).await else {
            break;
        };
        let revision = put.header().map_or(0, ResponseHeader::revision);
        acknowledged.push(Put {
            client,
            number,
            revision,
        });
        puts.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

/// The acknowledged puts of a round, in the order of their revisions.
async fn load_and_kill(store: StoreProcess, round: usize) -> Vec<Put> {
    let puts = Arc::<AtomicUsize>::default();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let counting = count(connect(&store).await, client, Arc::clone(&puts));
        clients.push(tokio::spawn(counting));
    }
    let enough = 1 + round * 7;
    until("there are enough puts", async || {
        puts.load(Ordering::Relaxed) >= enough
    })
    .await;
    store.kill().await.unwrap();
    let mut acknowledged = Vec::new();
    for client in clients {
        acknowledged.extend(within(client).await.unwrap());
    }
    acknowledged.sort_by_key(|put| put.revision);
    acknowledged
}

/// The keys are those of one revision: each put up to it is there, and none after it. Returns the current revision.
async fn check(store: &StoreProcess, acknowledged: &[Put]) -> i64 {
    let mut client = connect(store).await;
    let prefix = Some(GetOptions::new().with_prefix());
    let found = within(client.get("count/", prefix)).await.unwrap();
    let reached = found
        .kvs()
        .iter()
        .map(etcd_client::KeyValue::mod_revision)
        .max()
        .unwrap_or(0);
    for put in acknowledged.iter().filter(|put| put.revision <= reached) {
        let value = found
            .kvs()
            .iter()
            .find(|pair| pair.key() == key(put.client).as_bytes());
        let number: usize = value.unwrap().value_str().unwrap().parse().unwrap();
        assert!(
            number >= put.number,
            "{put:?} is lost, revision {reached} is not"
        );
    }
    let current = found.header().unwrap().revision();
    if let Some(last) = acknowledged.last() {
        assert!(
            current > last.revision,
            "the revision went back to {current}"
        );
        let old = Some(GetOptions::new().with_revision(last.revision));
        let refused = within(client.get(key(last.client), old)).await.unwrap_err();
        assert!(refused.to_string().contains("compacted"), "{refused}");
    }
    current
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_mode_buffered_loses_the_last_writes_only_and_says_so() {
    let folder = TempDir::new().unwrap();
    let flags = [SMALL_SEGMENTS, "--durability", "=buffered"];
    let (mut acknowledged, mut current) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let store = start(folder.path(), &flags).await;
        let revision = check(&store, &acknowledged).await;
        assert!(revision > current);
        current = revision;
        acknowledged = load_and_kill(store, round).await;
    }
}
