//! A `dormouse store` process with a data directory.

use std::{net::TcpListener, path::Path, process::Stdio, time::Duration};

use etcd_client::Client;
use tokio::process::{Child, Command};

/// Longer than a start takes on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A running store; it is killed when dropped.
pub(crate) struct StoreProcess {
    pub(crate) endpoint: String,
    child: Child,
}

impl StoreProcess {
    /// Starts the store, and waits until it answers.
    pub(crate) async fn start(folder: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let endpoint = format!("http://{address}");
        let child = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .args(["store", "--listen-client-urls", &endpoint, "--data-dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .env("DORMOUSE_LOG", "warn")
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut store = Self { endpoint, child };
        let endpoint = store.endpoint.clone();
        until("the store answers", async || {
            assert_eq!(store.child.try_wait().unwrap(), None, "the store ended");
            match Client::connect([&endpoint], None).await {
                Ok(mut client) => client.get("ready", None).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
        store
    }

    /// kill -9; returns when the process has ended.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting until {condition}"));
}
