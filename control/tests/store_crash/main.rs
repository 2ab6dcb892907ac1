//! kill -9 of `dormouse store` under load, again and again in one data directory: no acknowledged write is lost, the
//! operations before and after are linearizable, and a watch of the whole history has all of them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed start or call fails the test"
)]

mod buffered;
mod files;
mod full;
mod ledger;
mod rounds;

use std::path::Path;

use dormouse_store_checker::{
    history::Revision,
    linearize,
    process::StoreProcess,
    revisions,
    wait::{until, within},
    watcher, watches,
};
use etcd_client::Client;
use tempfile::TempDir;
use tokio::sync::watch;

use files::{MomentKind, segment_names, snapshot_names};
use rounds::{History, PREFIX, Rounds};

/// Segments that hold the records of less than a round, so that kills hit their rotation.
const SMALL_SEGMENTS: &str = "--journal-segment-bytes=4096";

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_loses_no_acknowledged_write() {
    let folder = TempDir::new().unwrap();
    let rounds = Rounds {
        count: 100,
        flags: &[SMALL_SEGMENTS],
        compacts: false,
        moments: &[MomentKind::Answers, MomentKind::Rotation],
    };
    let (store, history) = rounds.run(folder.path()).await;
    check_operations(&history, 500);
    check_watches(history, &store).await;
    store.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_during_snapshots_and_compactions_lose_no_acknowledged_write() {
    check_with_compactions("=os", 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_that_syncs_each_write_loses_none() {
    check_with_compactions("=fsync", 20).await;
}

async fn check_with_compactions(default: &str, count: u64) {
    let folder = TempDir::new().unwrap();
    let rounds = Rounds {
        count,
        flags: &[SMALL_SEGMENTS, "--durability", default],
        compacts: true,
        moments: &[
            MomentKind::Snapshot,
            MomentKind::Rotation,
            MomentKind::Answers,
        ],
    };
    let (store, history) = rounds.run(folder.path()).await;
    check_operations(&history, count);
    check_files(folder.path(), &store).await;
    store.kill().await.unwrap();
}

/// The next compaction finds more journal than state: a snapshot replaces the first segments.
async fn check_files(folder: &Path, store: &StoreProcess) {
    let mut client = connect(store).await;
    until("a snapshot replaces the first segments", async || {
        let put = client.put("more", "", None).await.unwrap();
        let revision = put.header().unwrap().revision();
        client.compact(revision, None).await.unwrap();
        let first = segment_names(folder).contains("0000000000000001.wal");
        !first && snapshot_names(folder).len() == 1
    })
    .await;
}

/// Starts the store on a data directory.
async fn start(folder: &Path, flags: &[&str]) -> StoreProcess {
    let program = Path::new(env!("CARGO_BIN_EXE_dormouse"));
    let data = format!("--data-dir={}", folder.display());
    let arguments = [data.as_str()].into_iter().chain(flags.iter().copied());
    StoreProcess::start(program, arguments).await.unwrap()
}

async fn connect(store: &StoreProcess) -> Client {
    Client::connect([&store.endpoint], None).await.unwrap()
}

fn check_operations(history: &History, writes_min: u64) {
    let acknowledged = history.ledger.writes();
    assert!(acknowledged > writes_min, "only {acknowledged} writes");
    let all = [history.durable.as_slice(), &history.volatile].concat();
    revisions::check(&all).unwrap_or_else(|violation| panic!("{violation}"));
    linearize::check(&history.durable).unwrap_or_else(|violation| panic!("{violation}"));
}

/// The watches of all rounds, and one of the whole history.
async fn check_watches(mut history: History, store: &StoreProcess) {
    let newest = history.ledger.revision();
    let (_end, end) = watch::channel::<Revision>(newest);
    let watch = Box::pin(watcher::record(&store.endpoint, PREFIX.into(), 1, end));
    let watch = within(watch).await.unwrap();
    assert!(
        watch.reached() >= newest,
        "the watch ended at revision {}",
        watch.reached()
    );
    history.watches.push(watch);
    watches::check(&history.durable, &history.watches)
        .unwrap_or_else(|violation| panic!("{violation}"));
}
