//! Stores that are opened again on their data directory.

mod failing;
mod faults;
mod formats;
mod transactions;

use std::path::Path;

use bytes::Bytes;
use dormouse_wal::Durability;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{
    alarm::Alarm,
    keyspace::KeyspaceHash,
    proto::etcdserverpb::{
        DeleteRangeRequest, PutRequest, RangeRequest, alarm_request::AlarmAction,
    },
    wire::KeyValue,
};

const LEASES: &str = "/registry/leases/a";

fn open(path: &Path) -> Store {
    let data = DataDir {
        path: path.to_owned(),
        policy: Policy::default(),
    };
    Store::open(Limits::default(), &data).unwrap()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn put_of(key: &str, value: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
        ..PutRequest::default()
    }
}

async fn put(store: &Store, key: &str, value: &str) -> Revision {
    let response = store.put(&put_of(key, value, 0)).await.unwrap();
    response.header.unwrap().revision
}

/// All pairs of a range, at a revision; 0 is the current one.
async fn range(
    store: &Store,
    (key, end): (&str, &str),
    revision: Revision,
) -> Result<Vec<KeyValue>, Error> {
    let request = RangeRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        range_end: Bytes::copy_from_slice(end.as_bytes()),
        revision,
        ..RangeRequest::default()
    };
    Ok(store.range(&request).await?.kvs)
}

const ALL: (&str, &str) = ("\0", "\0");

/// Keys of no prefix in mode `none`.
const RECORDED: (&str, &str) = ("a", "z");

#[tokio::test]
async fn a_new_directory_starts_at_revision_1_and_a_write_survives_the_end_of_the_process() {
    let directory = directory();
    let store = open(directory.path());
    assert_eq!(store.revision(), 1);
    let header = store.header(1);
    assert_eq!(put(&store, "a", "1").await, 2);
    put(&store, "b", "1").await;
    put(&store, "a", "2").await;
    let before = range(&store, ALL, 0).await.unwrap();
    drop(store);
    let store = open(directory.path());
    assert_eq!(range(&store, ALL, 0).await.unwrap(), before);
    // The history is there, too.
    let old = range(&store, RECORDED, 2).await.unwrap();
    assert_eq!(old[0].fields().value, b"1");
    let after = store.header(1);
    assert_eq!(
        (after.cluster_id, after.member_id),
        (header.cluster_id, header.member_id)
    );
}

#[tokio::test]
async fn the_revision_moves_beyond_every_answered_one() {
    let directory = directory();
    let mut last = 0;
    for clean in [false, true, false] {
        let store = open(directory.path());
        assert!(store.revision() > last);
        put(&store, "a", "1").await;
        last = put(&store, LEASES, "1").await;
        if clean {
            store.close().unwrap();
        }
    }
}

#[tokio::test]
async fn a_prefix_in_mode_none_is_empty_after_a_restart_and_its_past_is_compacted() {
    let directory = directory();
    let store = open(directory.path());
    let first = put(&store, "a", "1").await;
    let last = put(&store, LEASES, "1").await;
    store.close().unwrap();
    drop(store);
    let store = open(directory.path());
    let current = store.revision();
    assert_eq!(range(&store, ALL, 0).await.unwrap().len(), 1);
    assert_eq!(range(&store, RECORDED, first).await.unwrap().len(), 1);
    for revision in [first, last] {
        assert_eq!(range(&store, ALL, revision).await, Err(Error::Compacted));
        assert_eq!(
            range(&store, (LEASES, ""), revision).await,
            Err(Error::Compacted)
        );
    }
    assert_eq!(range(&store, ALL, current).await.unwrap().len(), 1);
}

#[tokio::test]
async fn members_survive_a_restart_and_a_snapshot() {
    let directory = directory();
    let learner = Member {
        id: 7,
        peer_ur_ls: vec!["http://learner:2380".into()],
        is_learner: true,
        ..Member::default()
    };
    let store = open(directory.path());
    let recorded = store.record_members(vec![learner.clone()]).unwrap();
    store.settle(recorded).await.unwrap();
    drop(store);
    for _ in 0..3 {
        let store = open(directory.path());
        assert_eq!(store.members(), std::slice::from_ref(&learner));
        put(&store, "a", "1").await;
        store.compact(store.revision(), true).await.unwrap();
        store
            .snapshot(store.shared.journal.as_ref().unwrap())
            .unwrap();
    }
}

#[tokio::test]
async fn leases_alarms_and_users_survive_a_restart_and_a_snapshot() {
    let directory = directory();
    let store = open(directory.path());
    let (kept, ..) = store.lease_grant(7, 100).await.unwrap();
    let (revoked, ..) = store.lease_grant(8, 100).await.unwrap();
    store.put(&put_of("a", "1", kept)).await.unwrap();
    store.put(&put_of("b", "1", revoked)).await.unwrap();
    store.lease_revoke(revoked).await.unwrap();
    let alarm = Alarm {
        kind: 2,
        member_id: 9,
    };
    let raised = store.alarm(AlarmAction::Activate, alarm).await;
    assert_eq!(raised.unwrap().0, [alarm]);
    let user = |state: &auth::State| state.user_add("root", None);
    store.change_auth(user).await.unwrap().unwrap();
    store.close().unwrap();
    drop(store);
    for snapshot in [false, true, true] {
        let store = open(directory.path());
        let (lease, _) = store.lease_time_to_live(kept);
        let lease = lease.unwrap();
        assert_eq!(
            (lease.granted_ttl_s, lease.keys),
            (100, vec![Bytes::from("a")])
        );
        assert!(store.lease_time_to_live(revoked).0.is_none());
        assert_eq!(range(&store, ALL, 0).await.unwrap().len(), 1);
        assert_eq!(store.alarms(0).0, [alarm]);
        assert!(store.auth().read(|state| state.user("root").is_ok()));
        if snapshot {
            let disarmed = store.alarm(AlarmAction::Deactivate, alarm).await;
            assert_eq!(disarmed.unwrap().0, [alarm]);
            store.compact(store.revision(), true).await.unwrap();
            store.alarm(AlarmAction::Activate, alarm).await.unwrap();
            store
                .snapshot(store.shared.journal.as_ref().unwrap())
                .unwrap();
        }
        store.close().unwrap();
    }
}

/// Bytes of all files of a directory.
fn written(path: &Path) -> u64 {
    let files = std::fs::read_dir(path).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn the_record_of_a_deletion_does_not_grow_with_its_keys_and_is_replayed() {
    let directory = directory();
    let store = open(directory.path());
    let (lease, ..) = store.lease_grant(7, 100).await.unwrap();
    for number in 0..300 {
        let lease = if number % 2 == 0 { lease } else { 0 };
        let put = put_of(&format!("k{number:03}"), "1", lease);
        store.put(&put).await.unwrap();
    }
    put(&store, LEASES, "1").await;
    let (before, bytes) = (store.revision(), written(directory.path()));
    let request = DeleteRangeRequest {
        // Without keys of mode fsync, for which zeros are written ahead.
        key: Bytes::from_static(b"/registry/e"),
        range_end: Bytes::from_static(b"k299"),
        ..DeleteRangeRequest::default()
    };
    assert_eq!(store.delete_range(&request).await.unwrap().deleted, 300);
    assert!(written(directory.path()) - bytes < 100);
    let keys = store.lease_time_to_live(lease).0.unwrap().keys;
    assert!(keys.is_empty(), "{keys:?}");
    drop(store);
    let store = open(directory.path());
    assert_eq!(range(&store, RECORDED, before).await.unwrap().len(), 300);
    assert_eq!(range(&store, ALL, 0).await.unwrap().len(), 1);
    let keys = store.lease_time_to_live(lease).0.unwrap().keys;
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let directory = directory();
    let _store = open(directory.path());
    let data = DataDir {
        path: directory.path().to_owned(),
        policy: Policy::default(),
    };
    let refused = Store::open(Limits::default(), &data).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
}

#[tokio::test]
async fn a_store_in_memory_starts_at_the_given_revision_with_a_compacted_past() {
    let store = Store::starting_at(Limits::default(), 1_000);
    assert_eq!(store.revision(), 1_000);
    assert_eq!(range(&store, ALL, 999).await, Err(Error::Compacted));
    assert_eq!(put(&store, "a", "1").await, 1_001);
}

/// A change of the store.
#[derive(Clone, Debug)]
enum Change {
    Put(u8, u8),
    Delete(u8, u8),
    /// Compacts this many revisions below the current one.
    Compact(i64),
    Snapshot,
    Reopen {
        close: bool,
    },
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0u8..12, any::<u8>()).prop_map(|(key, value)| Change::Put(key, value)),
        3 => (0u8..12, 0u8..4).prop_map(|(from, len)| Change::Delete(from, len)),
        1 => (0i64..20).prop_map(Change::Compact),
        1 => Just(Change::Snapshot),
        2 => any::<bool>().prop_map(|close| Change::Reopen { close }),
    ]
}

fn key(number: u8) -> String {
    format!("k{number:02}")
}

async fn apply(store: Store, path: &Path, change: &Change) -> Store {
    match *change {
        Change::Put(number, value) => {
            put(&store, &key(number), &value.to_string()).await;
        }
        Change::Delete(from, len) => {
            let request = DeleteRangeRequest {
                key: key(from).into(),
                range_end: key(from + len).into(),
                ..DeleteRangeRequest::default()
            };
            store.delete_range(&request).await.unwrap();
        }
        Change::Compact(back) => {
            // A revision that is compacted already changes nothing.
            let _ = store.compact((store.revision() - back).max(1), true).await;
        }
        Change::Snapshot => {
            let compacted = store.shared.state.read().keyspace.compacted();
            if compacted > 0 {
                store
                    .snapshot(store.shared.journal.as_ref().unwrap())
                    .unwrap();
            }
        }
        Change::Reopen { close } => {
            let current = store.revision();
            let before = state_up_to(&store, current).await;
            if close {
                store.close().unwrap();
            }
            drop(store);
            let store = open(path);
            assert_eq!(state_up_to(&store, current).await, before);
            return store;
        }
    }
    store
}

fn compacted(store: &Store) -> Revision {
    store.shared.state.read().keyspace.compacted()
}

/// All that may not change by a restart: the history, and its hashes at the last compaction and at a
/// revision.
async fn state_up_to(store: &Store, revision: Revision) -> (Vec<Vec<KeyValue>>, Vec<KeyspaceHash>) {
    let mut hashes = Vec::new();
    for revision in [compacted(store).max(1), revision] {
        hashes.push(store.hash(revision).await.unwrap().0);
    }
    (history(store).await, hashes)
}

/// The keys at every revision that can be read and changed something, with equal states joined.
async fn history(store: &Store) -> Vec<Vec<KeyValue>> {
    let first = compacted(store).max(1);
    let revisions: Vec<_> = {
        let state = store.shared.state.read();
        let events = state
            .keyspace
            .events_above(first)
            .map(|event| event.revision());
        std::iter::once(first).chain(events).collect()
    };
    let mut states = Vec::new();
    for revision in revisions {
        states.push(range(store, RECORDED, revision).await.unwrap());
    }
    states
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever happened, the history after a restart is that before it.
    #[test]
    fn a_restart_changes_no_key_of_no_readable_revision(changes in prop::collection::vec(change(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = directory();
            let mut store = open(directory.path());
            for change in &changes {
                store = apply(store, directory.path(), change).await;
            }
            apply(store, directory.path(), &Change::Reopen { close: false }).await;
        });
    }
}

#[test]
fn the_default_policy_records_what_the_tests_call_recorded() {
    assert_eq!(Policy::default().of(key(1).as_bytes()), Durability::Os);
}
