//! `dormouse store export` of a store that does not run.

use tempfile::TempDir;

use crate::commands::{connect, export, keys, restore, serve, status, stopped};

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_directory_is_restored_with_the_same_keys() {
    let folder = TempDir::new().unwrap();
    let (data, before) = stopped(&folder).await;
    let snapshot = folder.path().join("export.db");
    export(&data, &snapshot).await.success();
    let newest = before.iter().map(|(.., [_, written, ..])| *written).max();
    assert_eq!(status(&snapshot).await["revision"].as_i64(), newest);
    let copy = folder.path().join("copy");
    restore(&snapshot, &copy, &[]).await.success();
    // The export leaves the directory as it was.
    for data in [copy, data] {
        let store = serve(&data).await;
        let (pairs, _) = keys(&mut connect(&store.endpoint).await).await;
        assert_eq!(pairs, before);
        store.kill().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_is_exported_with_all_that_it_acknowledged() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let store = serve(&data).await;
    let mut client = connect(&store.endpoint).await;
    for number in 0..50 {
        client.put(format!("key/{number}"), "", None).await.unwrap();
    }
    store.kill().await.unwrap();
    let snapshot = folder.path().join("export.db");
    export(&data, &snapshot).await.success();
    let copy = folder.path().join("copy");
    restore(&snapshot, &copy, &[]).await.success();
    let store = serve(&copy).await;
    assert_eq!(keys(&mut connect(&store.endpoint).await).await.0.len(), 50);
    store.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_needs_a_stopped_store_and_a_new_file() {
    let folder = TempDir::new().unwrap();
    let (data, _) = stopped(&folder).await;
    let snapshot = folder.path().join("export.db");
    let store = serve(&data).await;
    let refused = export(&data, &snapshot).await.refusal();
    assert!(refused.contains("in use"), "{refused}");
    assert!(!snapshot.exists(), "a refused export left a file");
    store.kill().await.unwrap();
    std::fs::write(&snapshot, "precious").unwrap();
    let refused = export(&data, &snapshot).await.refusal();
    assert!(refused.contains("failed to open the snapshot"), "{refused}");
    assert_eq!(std::fs::read(&snapshot).unwrap(), b"precious");
}
