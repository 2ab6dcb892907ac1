//! Disks that refuse writes, syncs and reads: nothing is acknowledged that a restart would not have.

use dormouse_store_checker::{http, wait::within};
use etcd_client::{Client, WatchOptions, WatchStream};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    failing::{FailingFiles, Fault, Faults},
    *,
};
use crate::server;

/// A store whose keys are synced unless they have a prefix of their own, on a directory with faults.
fn failing(path: &Path) -> (Store, Faults) {
    let (files, faults) = FailingFiles::open(path);
    let policy = Policy {
        default: Durability::Fsync,
        ..Policy::default()
    };
    let store = Store::open_files(Limits::default(), files, policy);
    (store.unwrap(), faults)
}

/// A fault of writes or syncs, and what the reason of the failure names.
const FAULTS: [(Fault, &str); 3] = [
    (Fault::Full, "failed to write"),
    (Fault::Write, "failed to write"),
    (Fault::Sync, "failed to sync"),
];

#[tokio::test]
async fn a_failing_disk_refuses_every_change_and_shows_no_read_what_was_not_acknowledged() {
    for (fault, reason) in FAULTS {
        let directory = directory();
        let (store, faults) = failing(directory.path());
        let acknowledged = put(&store, "a", "1").await;
        faults.set(Some(fault));
        for key in ["a", LEASES] {
            let refused = store.put(&put_of(key, "2", 0)).await;
            assert_eq!(refused.unwrap_err(), Error::JournalFailed, "{fault:?}");
        }
        assert_eq!(store.lease_grant(0, 10).await, Err(Error::JournalFailed));
        let compacted = store.compact(acknowledged, false).await;
        assert_eq!(compacted, Err(Error::JournalFailed));
        let alarm = Alarm {
            kind: 1,
            member_id: 0,
        };
        let raised = store.alarm(AlarmAction::Activate, alarm).await;
        assert_eq!(raised, Err(Error::JournalFailed));
        assert!(store.record_members(Vec::new()).is_err());
        let failure = store.journal_failure().unwrap();
        assert!(failure.contains(reason), "{failure}");
        // The disk recovers, and the pages of a failed sync may be gone: the failure is final.
        faults.set(None);
        store.put(&put_of("a", "3", 0)).await.unwrap_err();
        assert_eq!(store.revision(), acknowledged);
        let pairs = range(&store, ALL, 0).await.unwrap();
        assert_eq!(pairs[0].fields().value, b"1");
        drop(store);
        let store = open(directory.path());
        let pairs = range(&store, RECORDED, acknowledged).await.unwrap();
        assert_eq!(pairs[0].fields().value, b"1");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_or_synced_is_refused_and_keeps_its_state() {
    for (fault, reason) in [(Fault::Read, "failed to"), (Fault::Sync, "failed to sync")] {
        let directory = directory();
        let store = open(directory.path());
        put(&store, "a", "1").await;
        drop(store);
        let (files, faults) = FailingFiles::open(directory.path());
        faults.set(Some(fault));
        let refused = Store::open_files(Limits::default(), files, Policy::default()).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
        let store = open(directory.path());
        assert_eq!(range(&store, RECORDED, 0).await.unwrap().len(), 1);
    }
}

/// A snapshot needs room for a file, when the journal may still have some in its segment.
#[tokio::test]
async fn a_snapshot_that_fails_changes_nothing() {
    for fault in [Fault::Full, Fault::Write] {
        let directory = directory();
        let (store, faults) = failing(directory.path());
        put(&store, "a", "1").await;
        store.compact(store.revision(), true).await.unwrap();
        faults.set(Some(fault));
        let journal = store.shared.journal.as_ref().unwrap();
        store.snapshot(journal).unwrap_err();
        faults.set(None);
        put(&store, "a", "2").await;
        drop(store);
        let store = open(directory.path());
        let pairs = range(&store, RECORDED, 0).await.unwrap();
        assert_eq!(pairs[0].fields().value, b"2");
    }
}

/// The values that a watch delivers before the answer to a progress request.
async fn delivered(watch: &mut WatchStream) -> Vec<String> {
    watch.request_progress().await.unwrap();
    let mut values = Vec::new();
    loop {
        let response = within(watch.message()).await.unwrap().unwrap();
        for event in response.events() {
            values.push(event.kv().unwrap().value_str().unwrap().to_owned());
        }
        if response.events().is_empty() && !response.created() {
            return values;
        }
    }
}

#[tokio::test]
async fn clients_of_the_server_learn_that_the_disk_failed_and_read_what_was_acknowledged() {
    for (fault, reason) in FAULTS {
        let directory = directory();
        let (store, faults) = failing(directory.path());
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(server::serve(listener, store.clone(), shutdown.clone()));
        let mut client = Client::connect([&address], None).await.unwrap();
        client.put("a", "1", None).await.unwrap();
        let watch = WatchOptions::new().with_start_revision(1);
        let mut watch = client.watch("a", Some(watch)).await.unwrap();
        faults.set(Some(fault));
        let refused = within(client.put("a", "2", None))
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("journal"), "{refused}");
        let read = within(client.get("a", None)).await.unwrap();
        assert_eq!(read.kvs()[0].value(), b"1");
        assert_eq!(delivered(&mut watch).await, ["1"], "{fault:?}");
        for path in ["/health", "/readyz"] {
            let (code, body) = within(http::get(&address, path)).await.unwrap();
            assert_eq!(code, 503, "{body}");
            assert!(body.contains(reason), "{body}");
        }
        assert_eq!(within(http::get(&address, "/livez")).await.unwrap().0, 200);
        shutdown.cancel();
        within(served).await.unwrap().unwrap();
        drop(store);
        let store = open(directory.path());
        let value = range(&store, RECORDED, 0).await.unwrap()[0]
            .fields()
            .value
            .to_vec();
        assert!(
            value == b"1" || (fault == Fault::Sync && value == b"2"),
            "{value:?}"
        );
    }
}
