//! A disk that takes no more bytes under a running store.

use std::path::Path;

use dormouse_store_checker::{http, process::StoreProcess, wait::within};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{connect, start};

/// The limit of a file, in blocks of the shell (512 or 1,024 bytes).
const BLOCKS: u32 = 64;

/// Values of 1 KiB that exceed the limit.
const WRITES: usize = 200;

/// Starts the store with a limit of the bytes of a file: larger writes fail as on a full disk.
async fn start_limited(folder: &Path) -> StoreProcess {
    // A process that ignores the signal gets the error of the write.
    let script = format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_dormouse")]);
    let data = format!("--data-dir={}", folder.display());
    StoreProcess::run(shell, [data]).await.unwrap()
}

fn key(number: usize) -> String {
    format!("key/{number}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_disk_is_full_says_so_and_loses_nothing_acknowledged() {
    let folder = TempDir::new().unwrap();
    let store = start_limited(folder.path()).await;
    let mut client = connect(&store).await;
    let mut acknowledged = 0;
    let refused = loop {
        assert!(acknowledged < WRITES, "the disk is not full");
        match within(client.put(key(acknowledged), vec![b'v'; 1_024], None)).await {
            Ok(_) => acknowledged += 1,
            Err(refused) => break refused.to_string(),
        }
    };
    assert!(acknowledged > 8, "{acknowledged}");
    assert!(refused.contains("journal"), "{refused}");
    within(client.put("later", "", None)).await.unwrap_err();
    let last = within(client.get(key(acknowledged - 1), None))
        .await
        .unwrap();
    assert_eq!(last.kvs().len(), 1, "reads are served");
    let address = store.endpoint.trim_start_matches("http://");
    let (code, body) = within(http::get(address, "/health")).await.unwrap();
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("failed to write"), "{body}");
    store.kill().await.unwrap();
    let store = start(folder.path(), &[]).await;
    let mut client = connect(&store).await;
    for number in 0..acknowledged {
        let found = within(client.get(key(number), None)).await.unwrap();
        assert_eq!(found.kvs().len(), 1, "{}", key(number));
    }
    within(client.put("later", "", None)).await.unwrap();
    store.kill().await.unwrap();
}
