//! `etcdctl snapshot save` from a running store, and `dormouse store restore` into a new directory.

use std::{fs, path::Path};

use dormouse_store_checker::wait::until;
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp, WatchOptions};
use tempfile::TempDir;

use crate::commands::{
    LEASE, LEASE_TTL, connect, fill, keys, restore, run, save, serve, status, stopped,
};

/// By how much a restore raises the revision unless a flag says otherwise.
const RAISED_BY: i64 = 1_000_000_000;

/// Bytes of the SHA-256 at the end of a saved snapshot.
const CHECKSUM_BYTES: usize = 32;

/// A backup of a filled store in a folder, and its keys and revision.
async fn backup(folder: &TempDir) -> std::path::PathBuf {
    let store = serve(&folder.path().join("source")).await;
    fill(&mut connect(&store.endpoint).await).await;
    let snapshot = folder.path().join("backup.db");
    save(&store.endpoint, &snapshot).await;
    store.kill().await.unwrap();
    snapshot
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_restore_a_backup_on_an_empty_machine() {
    let folder = TempDir::new().unwrap();
    let store = serve(&folder.path().join("source")).await;
    let mut client = connect(&store.endpoint).await;
    fill(&mut client).await;
    let snapshot = folder.path().join("backup.db");
    save(&store.endpoint, &snapshot).await;
    let (before, revision) = keys(&mut client).await;
    let described = status(&snapshot).await;
    assert_eq!(described["revision"], revision);
    assert!(described["totalSize"].as_u64().unwrap() > 0);
    // What is written after the backup is not in it.
    client.put("later", "", None).await.unwrap();
    store.kill().await.unwrap();

    let data = folder.path().join("restored");
    restore(&snapshot, &data, &[]).await.success();
    let store = serve(&data).await;
    let mut client = connect(&store.endpoint).await;
    let (after, raised) = keys(&mut client).await;
    assert_eq!(after, before);
    assert!(raised >= revision + RAISED_BY, "revision {raised}");
    check_the_rest(&mut client).await;
    refuses_history(&mut client, revision).await;
    assert!(store.stop().await.unwrap().success());
}

/// The lease with its keys, the user and the role.
async fn check_the_rest(client: &mut Client) {
    let lease = client.lease_time_to_live(LEASE, None).await.unwrap();
    assert_eq!(lease.granted_ttl(), LEASE_TTL);
    assert!(lease.ttl() > 0);
    client.lease_revoke(LEASE).await.unwrap();
    assert_eq!(client.get("leased", None).await.unwrap().count(), 0);
    let user = client.user_get("alice").await.unwrap();
    assert_eq!(user.roles(), ["reader"]);
}

/// A client that knows a revision from before is made to list again.
async fn refuses_history(client: &mut Client, known: i64) {
    let options = GetOptions::new().with_revision(known);
    let Err(Error::GRpcStatus(refused)) = client.get("/registry/pods/7", Some(options)).await
    else {
        panic!("the history before the restore was read")
    };
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!(refused.message(), compacted);
    let options = WatchOptions::new().with_start_revision(known + 1);
    let mut stream = client
        .watch("/registry/pods/7", Some(options))
        .await
        .unwrap();
    let canceled = loop {
        let response = stream.message().await.unwrap().unwrap();
        if response.canceled() {
            break response;
        }
        assert!(response.events().is_empty(), "{response:?}");
    };
    assert!(canceled.compact_revision() >= known + RAISED_BY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_beside_writers_has_each_transaction_whole() {
    let folder = TempDir::new().unwrap();
    let store = serve(&folder.path().join("source")).await;
    let mut writer = connect(&store.endpoint).await;
    let mut reader = connect(&store.endpoint).await;
    let writing = tokio::spawn(async move {
        for number in 0.. {
            let value = format!("{number}");
            let both = ["one", "other"].map(|key| TxnOp::put(key, value.as_str(), None));
            let each = TxnOp::put(format!("each/{number}"), value.as_str(), None);
            let txn = Txn::new().and_then(both.into_iter().chain([each]).collect::<Vec<_>>());
            if writer.txn(txn).await.is_err() {
                break;
            }
        }
    });
    until("there are some keys", async || {
        keys(&mut reader).await.0.len() > 100
    })
    .await;
    let snapshot = folder.path().join("backup.db");
    let (_, least) = keys(&mut reader).await;
    save(&store.endpoint, &snapshot).await;
    let (_, most) = keys(&mut reader).await;
    store.kill().await.unwrap();
    writing.await.unwrap();
    let saved = status(&snapshot).await["revision"].as_i64().unwrap();
    assert!((least..=most).contains(&saved), "{least} {saved} {most}");

    let data = folder.path().join("restored");
    restore(&snapshot, &data, &[]).await.success();
    let store = serve(&data).await;
    let mut client = connect(&store.endpoint).await;
    let (pairs, _) = keys(&mut client).await;
    let newest = pairs.last().unwrap();
    assert_eq!(newest.0, b"other");
    assert_eq!(newest.1, pairs[pairs.len() - 2].1);
    // One key of each transaction since the first one, which made revision 2.
    let transactions = usize::try_from(saved - 1).unwrap();
    assert_eq!(pairs.len(), transactions + 2);
    assert_eq!(newest.1, (transactions - 1).to_string().into_bytes());
    store.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_raise_of_the_revision_can_be_chosen() {
    let folder = TempDir::new().unwrap();
    let snapshot = backup(&folder).await;
    let saved = status(&snapshot).await["revision"].as_i64().unwrap();
    let data = folder.path().join("restored");
    restore(&snapshot, &data, &["--bump-revision=5000"])
        .await
        .success();
    let store = serve(&data).await;
    let mut client = connect(&store.endpoint).await;
    let created = client.txn(
        Txn::new()
            .when([Compare::version("new", CompareOp::Equal, 0)])
            .and_then([TxnOp::put("new", "", None)]),
    );
    let revision = created.await.unwrap().header().unwrap().revision();
    assert!(
        (saved + 5_000..saved + 5_100).contains(&revision),
        "{saved} {revision}"
    );
    store.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_a_store_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    let (data, before) = stopped(&folder).await;
    let snapshot = backup(&folder).await;
    let refused = restore(&snapshot, &data, &[]).await.refusal();
    assert!(
        refused.contains("is not empty: name one that does not exist"),
        "{refused}"
    );
    let store = serve(&data).await;
    assert_eq!(keys(&mut connect(&store.endpoint).await).await.0, before);
    let refused = restore(&snapshot, &data, &[]).await.refusal();
    assert!(refused.contains("in use"), "{refused}");
    store.kill().await.unwrap();
}

/// Restores bytes with flags; returns the refusal, and checks that no store is left behind.
async fn refused(folder: &Path, bytes: &[u8], flags: &[&str]) -> String {
    let snapshot = folder.join("damaged.db");
    fs::write(&snapshot, bytes).unwrap();
    let data = folder.join("never");
    let refused = restore(&snapshot, &data, flags).await.refusal();
    assert!(!data.exists(), "a refused restore left {}", data.display());
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_refused_with_the_way_out() {
    let folder = TempDir::new().unwrap();
    let bytes = fs::read(backup(&folder).await).unwrap();
    for place in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        let refused = refused(folder.path(), &damaged, &[]).await;
        assert!(refused.contains("use another copy"), "{place}: {refused}");
    }
    for length in [0, 10, bytes.len() / 2] {
        refused(folder.path(), &bytes[..length], &[]).await;
        refused(folder.path(), &bytes[..length], &["--skip-hash-check"]).await;
    }
    let refused = refused(folder.path(), b"no database", &[]).await;
    assert!(refused.contains("snapshot"), "{refused}");
    let missing = restore(
        &folder.path().join("missing"),
        &folder.path().join("x"),
        &[],
    )
    .await;
    let missing = missing.refusal();
    assert!(missing.contains("failed to open the snapshot"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_a_checksum_is_restored_only_if_the_check_is_skipped() {
    let folder = TempDir::new().unwrap();
    let bytes = fs::read(backup(&folder).await).unwrap();
    let database = &bytes[..bytes.len() - CHECKSUM_BYTES];
    let refused = refused(folder.path(), database, &[]).await;
    assert!(refused.contains("skip the check only if"), "{refused}");
    let data = folder.path().join("restored");
    let snapshot = folder.path().join("damaged.db");
    restore(&snapshot, &data, &["--skip-hash-check"])
        .await
        .success();
    let store = serve(&data).await;
    let (pairs, _) = keys(&mut connect(&store.endpoint).await).await;
    assert_eq!(pairs.len(), 302);
    store.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_its_files_names_them() {
    let printed = run(crate::commands::dormouse(), ["store", "restore"])
        .await
        .refusal();
    assert!(printed.contains("--snapshot <FILE>"), "{printed}");
    assert!(printed.contains("--data-dir <DIRECTORY>"), "{printed}");
}
