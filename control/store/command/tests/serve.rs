//! The command from its flags to its clients.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use dormouse_store_command::{Flags, RunError, run};
use etcd_client::{Client, Error};
use tokio::{net::TcpListener, task::JoinHandle, time};
use tokio_util::sync::CancellationToken;

/// Longer than any operation of these tests takes on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flags: Flags,
}

/// An address that no server listens on now.
async fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    listener.local_addr().unwrap()
}

fn start(arguments: &[&str], shutdown: &CancellationToken) -> JoinHandle<Result<(), RunError>> {
    let command = Command::parse_from([&["store"], arguments].concat());
    tokio::spawn(run(command.flags, shutdown.clone()))
}

/// A client, as soon as the server listens.
async fn connect(url: &str) -> Client {
    let connected = async {
        loop {
            if let Ok(mut client) = Client::connect([url], None).await
                && client.status().await.is_ok()
            {
                return client;
            }
            time::sleep(Duration::from_millis(2)).await;
        }
    };
    time::timeout(TIMEOUT, connected).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_reach_the_server() {
    let (first, second) = (unused_address().await, unused_address().await);
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let urls = format!("--listen-client-urls=http://{first},http://{second}");
    let trace_flag = format!("--trace={}", trace.display());
    let shutdown = CancellationToken::new();
    let arguments = [
        &urls,
        "--initial-revision=1",
        "--name=cp",
        "--max-request-bytes=100",
        &trace_flag,
    ];
    let server = start(&arguments, &shutdown);
    let mut client = connect(&format!("http://{first}")).await;
    let members = client.member_list().await.unwrap();
    assert_eq!(members.members()[0].name(), "cp");
    assert_eq!(members.members()[0].client_urls().len(), 2);
    let mut client = connect(&format!("http://{second}")).await;
    client.put("key", "value", None).await.unwrap();
    let refused = client.put("key", vec![b'x'; 100], None).await;
    assert!(matches!(refused, Err(Error::GRpcStatus(_))), "{refused:?}");
    shutdown.cancel();
    time::timeout(TIMEOUT, server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let lines = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["rpc"] == "KV/Put")
        .collect();
    assert_eq!(lines[0]["req"]["value"], "value");
    assert_eq!(lines[1]["res"]["header"]["revision"], 2);
    assert_eq!(lines[0]["call"], lines[1]["call"]);
    assert_eq!(lines[3]["err"]["code"], "InvalidArgument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_keeps_the_keys_and_a_store_in_memory_starts_from_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().display());
    let mut revisions = Vec::new();
    for arguments in [vec![data.as_str()], vec![data.as_str()], vec![]] {
        let address = unused_address().await;
        let urls = format!("--listen-client-urls=http://{address}");
        let shutdown = CancellationToken::new();
        let server = start(&[&[urls.as_str()][..], &arguments].concat(), &shutdown);
        let mut client = connect(&format!("http://{address}")).await;
        let found = client.get("key", None).await.unwrap();
        revisions.push((found.count(), found.header().unwrap().revision()));
        client.put("key", "value", None).await.unwrap();
        drop(client);
        shutdown.cancel();
        let ended = time::timeout(TIMEOUT, server).await.unwrap();
        ended.unwrap().unwrap();
    }
    let [new, again, memory] = revisions[..] else {
        panic!("{revisions:?}");
    };
    assert_eq!(new, (0, 1));
    // The put was revision 2, and a start moves the revision.
    assert_eq!(again, (1, 3));
    assert!(
        memory.0 == 0 && (1 << 50..1 << 53).contains(&memory.1),
        "{memory:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_named() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let server = start(&["--listen-client-urls", &url], &shutdown);
    let refused = time::timeout(TIMEOUT, server).await.unwrap().unwrap();
    assert!(refused.unwrap_err().to_string().contains(&url));
}
