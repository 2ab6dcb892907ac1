//! kill -9 of `dormouse store` under load, again and again in one data directory: no acknowledged write is lost, the
//! operations before and after are linearizable, and a watch of the whole history has all of them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed start or call fails the test"
)]

mod ledger;

use std::{path::Path, sync::Arc, time::Duration};

use dormouse_store_checker::{
    clients::{Load, Recorder},
    history::{Key, Op, Operation, Request, Revision, Watch, server_ended},
    linearize,
    process::{self, StoreProcess},
    revisions, watcher, watches,
};
use etcd_client::Client;
use tempfile::TempDir;
use tokio::sync::watch;

use ledger::Ledger;

/// Rounds of load and kill -9.
const ROUNDS: u64 = 100;

/// Answers in one round before the kill, at most.
const ANSWERS_MAX: u64 = 150;

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

const PREFIX: &str = "key/";

async fn start(folder: &Path) -> StoreProcess {
    let program = Path::new(env!("CARGO_BIN_EXE_dormouse"));
    let data = format!("--data-dir={}", folder.display());
    StoreProcess::start(program, [data]).await.unwrap()
}

/// Keys that survive kill -9, and keys whose prefix has no durability.
fn keys() -> (Vec<Key>, Vec<Key>) {
    let durable = (0..6).map(|number| format!("{PREFIX}{number}"));
    let volatile = (0..2).map(|number| format!("/registry/leases/{number}"));
    (durable.collect(), volatile.collect())
}

/// The clients' history over all rounds.
#[derive(Default)]
struct History {
    /// Operations on keys that survive.
    durable: Vec<Operation>,
    /// Operations on keys without durability: only their revisions must not come again.
    volatile: Vec<Operation>,
    /// One watch of the keys that survive, which each round resumes.
    watches: Vec<Watch>,
    ledger: Ledger,
}

impl History {
    fn learn(&mut self, round: Self) {
        self.ledger.learn(&round.durable);
        self.ledger.learn_revisions(&round.volatile);
        self.durable.extend(round.durable);
        self.volatile.extend(round.volatile);
        self.watches.extend(round.watches);
    }

    /// The first revision that the watch has not delivered.
    fn resume_at(&self) -> Revision {
        self.watches.last().map_or(1, |watch| watch.reached() + 1)
    }
}

/// Loads the store, and kills it after a random number of answers.
async fn load_and_kill(
    recorder: &Arc<Recorder>,
    store: StoreProcess,
    round: u64,
    start: Revision,
) -> History {
    let (durable, volatile) = keys();
    let clients = |keys, clients| {
        let load = Load {
            endpoint: store.endpoint.clone(),
            clients,
            operations: usize::MAX,
            keys,
            seed: round,
        };
        let recorder = Arc::clone(recorder);
        tokio::spawn(async move { recorder.run(&load).await })
    };
    let (durable, volatile) = (clients(durable, 6), clients(volatile, 2));
    let endpoint = store.endpoint.clone();
    let watched = tokio::spawn(async move {
        let (_end, end) = watch::channel(Revision::MAX);
        watcher::record(&endpoint, PREFIX.into(), start, end).await
    });
    let enough = recorder.answers() + fastrand::Rng::with_seed(round).u64(1..ANSWERS_MAX);
    process::until("there are enough answers", async || {
        recorder.answers() >= enough
    })
    .await;
    store.kill().await.unwrap();
    let ended = recorder.now();
    let mut history = History {
        durable: within(durable).await.unwrap(),
        volatile: within(volatile).await.unwrap(),
        watches: within(watched).await.unwrap().into_iter().collect(),
        ledger: Ledger::default(),
    };
    server_ended(&mut history.durable, ended);
    server_ended(&mut history.volatile, ended);
    history
}

async fn within<F: Future>(future: F) -> F::Output {
    let ended = tokio::time::timeout(TIMEOUT, future).await;
    ended.expect("no result within a minute")
}

/// Reads all keys that survive, and compares them with the ledger.
async fn read_back(recorder: &Recorder, store: &StoreProcess, history: &mut History) {
    let mut client = Client::connect([&store.endpoint], None).await.unwrap();
    for key in keys().0 {
        let read = recorder
            .call(&mut client, 0, Request::of(vec![Op::Get(key)]))
            .await;
        history.ledger.check(&read);
        history.durable.push(read);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_loses_no_acknowledged_write() {
    let folder = TempDir::new().unwrap();
    let recorder = Arc::new(Recorder::default());
    let mut history = History::default();
    for round in 0..ROUNDS {
        let store = start(folder.path()).await;
        read_back(&recorder, &store, &mut history).await;
        let start = history.resume_at();
        history.learn(load_and_kill(&recorder, store, round, start).await);
    }
    let store = start(folder.path()).await;
    read_back(&recorder, &store, &mut history).await;
    check(history, &store).await;
    store.kill().await.unwrap();
}

async fn check(mut history: History, store: &StoreProcess) {
    let acknowledged = history.ledger.writes();
    assert!(acknowledged > ROUNDS * 5, "only {acknowledged} writes");
    let all = [history.durable.as_slice(), &history.volatile].concat();
    revisions::check(&all).unwrap_or_else(|violation| panic!("{violation}"));
    linearize::check(&history.durable).unwrap_or_else(|violation| panic!("{violation}"));
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
