//! Golden vectors of etcd 3.6, replayed against `dormouse store`, with data directories and in memory: no response may
//! differ.
//!
//! The vectors are `tests/vectors/*.jsonl.gz`, or `*.jsonl` in the folder that
//! `DORMOUSE_ETCD_VECTORS` names. `DORMOUSE_ETCD_FILES` selects files, `DORMOUSE_ETCD_SCENARIO` one
//! scenario.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a malformed vector or response fails the test; the counts of comparisons are printed"
)]

mod json;
mod matching;
mod messages;
mod outcome;
mod replay;
mod rpc;
mod watching;

use std::{env, path::Path};

use dormouse_vectors::Vectors;
use futures::{StreamExt, stream};
use outcome::Outcome;
use replay::{Home, Scenario};

/// The files of vectors.
const FILES: [&str; 13] = [
    "kv",
    "txn",
    "revisions",
    "compaction",
    "watch",
    "lease",
    "kubernetes",
    "errors",
    "auth",
    "maintenance",
    "cluster",
    "concurrency",
    "random",
];

/// Comparisons in all files, at least.
const DECISIONS_MIN: usize = 22_000;

/// Scenarios that run in parallel; most of them wait for timeouts.
const PARALLEL: usize = 12;

/// Differences that are printed; further ones are only counted.
const SHOWN_MAX: usize = 40;

/// The files to replay: all, or those that `DORMOUSE_ETCD_FILES` (`kv,txn`) names.
fn files() -> Vec<String> {
    match env::var("DORMOUSE_ETCD_FILES") {
        Ok(names) => names.split(',').map(str::to_owned).collect(),
        Err(_) => FILES.map(str::to_owned).to_vec(),
    }
}

fn vectors() -> Vectors {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    Vectors::find(&own, "DORMOUSE_ETCD_VECTORS")
}

/// Replays one file of vectors; `DORMOUSE_ETCD_SCENARIO` selects a single scenario.
async fn replay_file(name: &str, home: Home) -> Outcome {
    let only = env::var("DORMOUSE_ETCD_SCENARIO").ok();
    let scenarios: Vec<Scenario> = vectors()
        .named(name)
        .into_iter()
        .map(Scenario::new)
        .filter(|scenario| only.as_ref().is_none_or(|only| scenario.name() == only))
        .collect();
    let outcomes = stream::iter(scenarios.into_iter().map(|scenario| scenario.replay(home)));
    let outcomes: Vec<Outcome> = outcomes.buffer_unordered(PARALLEL).collect().await;
    let mut total = Outcome::default();
    for outcome in outcomes {
        total.add(outcome);
    }
    println!("{name:>12}: {total}");
    total
}

/// Replays all files; fails if there are too few.
async fn replay_files(home: Home) -> Outcome {
    let mut total = Outcome::default();
    for name in files() {
        total.add(replay_file(&name, home).await);
    }
    let selections = ["DORMOUSE_ETCD_FILES", "DORMOUSE_ETCD_SCENARIO"];
    let selected = selections.iter().any(|name| env::var_os(name).is_some());
    assert!(
        selected || total.decisions > DECISIONS_MIN,
        "too few decisions read: {total}"
    );
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_response_of_etcd_is_reproduced() {
    let kept = replay_files(Home::Directory).await;
    println!("with data directories: {kept}\n");
    let total = replay_files(Home::Memory).await;
    let differences = || kept.differences.iter().chain(&total.differences);
    for difference in differences().take(SHOWN_MAX) {
        println!("{difference}\n");
    }
    println!("{total}");
    assert_eq!(differences().count(), 0, "responses differ from etcd's");
}
