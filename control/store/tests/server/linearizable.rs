//! Histories of concurrent clients and watches: linearizable, with etcd's guarantees of watches.

use std::sync::Arc;

use dormouse_store_checker::{
    clients::{Load, Recorder},
    history::{Operation, Revision, Watch},
    linearize, revisions, watcher, watches,
};
use futures::future::join_all;
use tokio::{sync::watch, task::JoinHandle};

use crate::harness::{Served, until, within};

const PREFIX: &str = "key/";

fn load(served: &Served, seed: u64) -> Load {
    Load {
        endpoint: served.endpoint.clone(),
        clients: 8,
        operations: 400,
        keys: (0..6).map(|number| format!("{PREFIX}{number}")).collect(),
        seed,
    }
}

fn watched(served: &Served, start: Revision, end: &watch::Receiver<Revision>) -> JoinHandle<Watch> {
    let (endpoint, end) = (served.endpoint.clone(), end.clone());
    tokio::spawn(async move {
        let watch = watcher::record(&endpoint, PREFIX.into(), start, end).await;
        watch.unwrap()
    })
}

fn writes(operations: &[Operation]) -> usize {
    let wrote = |operation: &&Operation| !operation.effects().is_empty();
    operations.iter().filter(wrote).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_and_watches_see_one_order_of_writes() {
    let served = Served::start().await;
    let recorder = Arc::new(Recorder::default());
    let (end, ended) = watch::channel(Revision::MAX);
    let mut watchers = vec![watched(&served, 1, &ended), watched(&served, 1, &ended)];
    let run = tokio::spawn({
        let (recorder, load) = (Arc::clone(&recorder), load(&served, 1));
        async move { recorder.run(&load).await }
    });
    // Watches that start in the middle, in the past and in the future of the writes.
    until("there are writes", async || served.store.revision() > 300).await;
    let current = served.store.revision();
    watchers.extend([2, current, current + 100].map(|start| watched(&served, start, &ended)));
    let operations = within(run).await.unwrap();
    end.send(served.store.revision()).unwrap();
    let delivered: Vec<Watch> = within(join_all(watchers))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(
        operations
            .iter()
            .all(|operation| operation.answer().is_some())
    );
    assert!(
        writes(&operations) > 1_000,
        "{} writes",
        writes(&operations)
    );
    revisions::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
    linearize::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
    watches::check(&operations, &delivered).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(
        delivered
            .iter()
            .all(|watch| watch.reached() >= served.store.revision())
    );
    served.stop().await;
}
