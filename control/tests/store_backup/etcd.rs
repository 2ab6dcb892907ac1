//! Backups from the store to etcd and from etcd to the store, where Debian's etcd is installed.

use std::{net::TcpListener, path::Path, process::Stdio};

use dormouse_store_checker::wait::until;
use etcd_client::Client;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::commands::{connect, fill, keys, restore, run, save, serve, status};

/// Debian's etcd, of the package etcd-server.
const ETCD: &str = "/usr/bin/etcd";

/// A running etcd. It is killed when this is dropped.
struct Etcd {
    endpoint: String,
    child: Child,
}

fn url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

impl Etcd {
    async fn start(data: &Path) -> Self {
        let (endpoint, peer) = (url(), url());
        let child = Command::new(ETCD)
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", &endpoint])
            .args(["--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut etcd = Self { endpoint, child };
        until("etcd answers", async || {
            assert_eq!(etcd.child.try_wait().unwrap(), None, "etcd ended");
            match Client::connect([&etcd.endpoint], None).await {
                Ok(mut client) => client.get("ready", None).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
        etcd
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Whether etcd is installed; says so if not.
fn installed() -> bool {
    let installed = Path::new(ETCD).exists();
    if !installed {
        println!("skipped: {ETCD} is not installed (apt-get install etcd-server)");
    }
    installed
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_restores_a_backup_of_the_store() {
    if !installed() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = serve(&folder.path().join("source")).await;
    let mut client = connect(&store.endpoint).await;
    fill(&mut client).await;
    // The last revision left no key, and must not be given again.
    client.delete("leased", None).await.unwrap();
    let snapshot = folder.path().join("backup.db");
    save(&store.endpoint, &snapshot).await;
    let before = keys(&mut client).await;
    store.kill().await.unwrap();
    let data = folder.path().join("etcd");
    let (snapshot, data) = (snapshot.to_str().unwrap(), data.to_str().unwrap());
    let arguments = ["snapshot", "restore", snapshot, "--data-dir", data];
    run("etcdctl", arguments).await.success();
    let etcd = Etcd::start(Path::new(data)).await;
    let mut client = connect(&etcd.endpoint).await;
    assert_eq!(keys(&mut client).await, before);
    let user = client.user_get("alice").await.unwrap();
    assert_eq!(user.roles(), ["reader"]);
    etcd.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_restores_a_backup_of_etcd() {
    if !installed() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let etcd = Etcd::start(&folder.path().join("etcd")).await;
    let mut client = connect(&etcd.endpoint).await;
    fill(&mut client).await;
    let snapshot = folder.path().join("backup.db");
    save(&etcd.endpoint, &snapshot).await;
    let (before, revision) = keys(&mut client).await;
    assert_eq!(status(&snapshot).await["revision"], revision);
    etcd.kill().await;
    let data = folder.path().join("restored");
    restore(&snapshot, &data, &[]).await.success();
    let store = serve(&data).await;
    assert_eq!(keys(&mut connect(&store.endpoint).await).await.0, before);
    store.kill().await.unwrap();
}
