//! Rounds of load, kill -9 and restart in one data directory.

use std::{path::Path, sync::Arc};

use dormouse_store_checker::{
    clients::{Load, Recorder},
    history::{Key, Op, Operation, Request, Revision, Watch, server_ended},
    process::StoreProcess,
    wait::{TIMEOUT, within},
    watcher,
};
use etcd_client::{Client, ResponseHeader};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use crate::{
    connect,
    files::{Moment, MomentKind},
    ledger::Ledger,
    start,
};

/// Answers in one round before the kill, at most: of a kill after a number of answers, and of one that waits for another
/// moment.
const ANSWERS_MAX: u64 = 150;
const WAITED_ANSWERS_MAX: u64 = 300;

pub(crate) const PREFIX: &str = "key/";

/// Keys that survive kill -9, and keys whose prefix has no durability.
fn keys() -> (Vec<Key>, Vec<Key>) {
    let durable = (0..6).map(|number| format!("{PREFIX}{number}"));
    let volatile = (0..2).map(|number| format!("/registry/leases/{number}"));
    (durable.collect(), volatile.collect())
}

/// The rounds of a test.
pub(crate) struct Rounds<'a> {
    pub(crate) count: u64,
    pub(crate) flags: &'a [&'a str],
    /// Whether a client compacts all the time.
    pub(crate) compacts: bool,
    /// The kinds of moments of the kills, in turns.
    pub(crate) moments: &'a [MomentKind],
}

/// The clients' history over all rounds.
#[derive(Default)]
pub(crate) struct History {
    /// Operations on keys that survive.
    pub(crate) durable: Vec<Operation>,
    /// Operations on keys without durability: only their revisions must not come again.
    pub(crate) volatile: Vec<Operation>,
    /// One watch of the keys that survive, which each round resumes; none with compactions.
    pub(crate) watches: Vec<Watch>,
    pub(crate) ledger: Ledger,
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

impl Rounds<'_> {
    /// Runs the rounds; returns the store that runs after the last kill, and the history.
    pub(crate) async fn run(&self, folder: &Path) -> (StoreProcess, History) {
        let recorder = Arc::new(Recorder::default());
        let mut history = History::default();
        for (round, &kind) in (0..self.count).zip(self.moments.iter().cycle()) {
            let store = start(folder, self.flags).await;
            read_back(&recorder, &store, &mut history).await;
            let round = Round {
                recorder: &recorder,
                folder,
                seed: round,
                kind,
            };
            let watched = (!self.compacts).then(|| history.resume_at());
            history.learn(round.load_and_kill(store, watched).await);
        }
        let store = start(folder, self.flags).await;
        read_back(&recorder, &store, &mut history).await;
        (store, history)
    }
}

struct Round<'a> {
    recorder: &'a Arc<Recorder>,
    folder: &'a Path,
    seed: u64,
    kind: MomentKind,
}

impl Round<'_> {
    /// Loads the store, and kills it. Watches from a revision on, or compacts.
    async fn load_and_kill(&self, store: StoreProcess, watched: Option<Revision>) -> History {
        let (durable, volatile) = keys();
        let (durable, volatile) = (
            self.clients(&store, durable, 6),
            self.clients(&store, volatile, 2),
        );
        let watched = watched.map(|start| tokio::spawn(watch_from(store.endpoint.clone(), start)));
        let compacting = match watched {
            Some(_) => None,
            None => Some(tokio::spawn(compact(connect(&store).await))),
        };
        self.moment().await;
        store.kill().await.unwrap();
        let ended = self.recorder.now();
        let mut history = History {
            durable: within(durable).await.unwrap(),
            volatile: within(volatile).await.unwrap(),
            ..History::default()
        };
        if let Some(watched) = watched {
            history.watches.extend(within(watched).await.unwrap());
        }
        if let Some(compacting) = compacting {
            within(compacting).await.unwrap();
        }
        server_ended(&mut history.durable, ended);
        server_ended(&mut history.volatile, ended);
        history
    }

    fn clients(
        &self,
        store: &StoreProcess,
        keys: Vec<Key>,
        clients: usize,
    ) -> JoinHandle<Vec<Operation>> {
        let load = Load {
            endpoint: store.endpoint.clone(),
            clients,
            operations: usize::MAX,
            keys,
            seed: self.seed,
        };
        let recorder = Arc::clone(self.recorder);
        tokio::spawn(async move { recorder.run(&load).await })
    }

    /// Returns at the moment of the kill, or after enough answers.
    async fn moment(&self) {
        let answers = fastrand::Rng::with_seed(self.seed).u64(1..ANSWERS_MAX);
        let answers = match self.kind {
            MomentKind::Answers => answers,
            MomentKind::Rotation | MomentKind::Snapshot => WAITED_ANSWERS_MAX,
        };
        let enough = self.recorder.answers() + answers;
        let deadline = Instant::now() + TIMEOUT;
        let moment = Moment::next(self.kind, self.folder);
        while self.recorder.answers() < enough && !moment.has_come(self.folder) {
            assert!(Instant::now() < deadline, "there are not enough answers");
            moment.pause().await;
        }
    }
}

async fn watch_from(endpoint: String, start: Revision) -> Option<Watch> {
    let (_end, end) = watch::channel(Revision::MAX);
    watcher::record(&endpoint, PREFIX.into(), start, end)
        .await
        .ok()
}

/// Compacts some revisions below the current one until the store is killed.
async fn compact(mut client: Client) {
    while let Ok(read) = client.get("compaction", None).await {
        let current = read.header().map_or(0, ResponseHeader::revision);
        // A revision that is compacted already is refused.
        let _ = client.compact(current - 20, None).await;
    }
}

/// Reads all keys that survive, and compares them with the ledger.
async fn read_back(recorder: &Recorder, store: &StoreProcess, history: &mut History) {
    let mut client = connect(store).await;
    for key in keys().0 {
        let read = recorder
            .call(&mut client, 0, Request::of(vec![Op::Get(key)]))
            .await;
        history.ledger.check(&read);
        history.durable.push(read);
    }
}
