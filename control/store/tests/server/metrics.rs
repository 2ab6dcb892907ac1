//! The metrics that dashboards and alerts for etcd read, on the client port and on a port of their own.

use dormouse_store::{
    Limits, Store,
    durable::{DataDir, Policy},
    server,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    harness::{Served, until, within},
    http::get_at,
};

/// The page of metrics, without the end mark.
async fn page(address: &str) -> String {
    let (code, page) = get_at(address, "/metrics").await;
    assert_eq!(code, 200);
    page
}

/// The sum of the values of all lines that start with a name and have a label.
fn sum(page: &str, name: &str, label: &str) -> u64 {
    let lines = page
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    values.sum()
}

#[tokio::test]
async fn calls_are_counted_by_method_and_code() {
    let served = Served::start().await;
    let mut client = served.client().await;
    for _ in 0..3 {
        client.put("key", "value", None).await.unwrap();
    }
    client.put("", "value", None).await.unwrap_err();
    let watch = client.watch("key", None).await.unwrap();
    drop(watch);
    let address = served.endpoint.trim_start_matches("http://");
    let text = page(address).await;
    let put = r#"grpc_method="Put""#;
    assert_eq!(sum(&text, "grpc_server_started_total", put), 4, "{text}");
    let handled = |code| {
        sum(
            &text,
            "grpc_server_handled_total",
            &format!("{put},grpc_code=\"{code}\""),
        )
    };
    assert_eq!(
        (handled("OK"), handled("InvalidArgument")),
        (3, 1),
        "{text}"
    );
    assert_eq!(
        sum(&text, "grpc_server_handling_seconds_count", put),
        4,
        "{text}"
    );
    until("the end of the watch is counted", async || {
        sum(
            &page(address).await,
            "grpc_server_handled_total",
            r#"grpc_method="Watch""#,
        ) > 0
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn a_port_of_their_own_has_the_same_metrics_and_checks() {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir {
        path: folder.path().into(),
        policy: Policy::default(),
    };
    let store = Store::open(Limits::default(), &data).unwrap();
    let served = Served::with_options(store, server::Options::default()).await;
    let mut client = served.client().await;
    client.put("key", vec![b'v'; 100_000], None).await.unwrap();
    client.lease_grant(60, None).await.unwrap();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shutdown = CancellationToken::new();
    let http = server::serve_http(listener, served.store.clone(), shutdown.clone());
    let http = tokio::spawn(http);
    for path in ["/health", "/livez", "/readyz", "/version"] {
        assert_eq!(get_at(&address, path).await.0, 200, "{path}");
    }
    let page = page(&address).await;
    for (name, value) in [
        ("etcd_server_has_leader", 1),
        ("etcd_server_is_leader", 1),
        ("etcd_server_proposals_committed_total", 2),
        ("etcd_server_proposals_pending", 0),
        ("etcd_server_proposals_failed_total", 0),
        ("etcd_mvcc_put_total", 1),
        ("etcd_debugging_mvcc_current_revision", 2),
        ("etcd_debugging_mvcc_compact_revision", 0),
        ("etcd_debugging_lease_granted_total", 1),
        ("dormouse_store_watchers_lost_total", 0),
        ("dormouse_store_compactions_total", 0),
    ] {
        assert!(
            page.contains(&format!("\n{name} {value}\n")),
            "{name} {value}:\n{page}"
        );
    }
    let received = sum(&page, "etcd_network_client_grpc_received_bytes_total", "");
    assert!(received > 100_000, "{received}");
    assert!(sum(&page, "etcd_network_client_grpc_sent_bytes_total", "") > 0);
    assert!(sum(&page, "process_resident_memory_bytes", "") > 1_000_000);
    let held = sum(&page, "dormouse_store_held_bytes", "");
    assert_eq!(held, served.store.bytes());
    assert!(sum(&page, "dormouse_store_held_bytes", r#"kind="records""#) > 100_000);
    assert!(sum(&page, "etcd_disk_wal_write_bytes_total", "") > 100_000);
    shutdown.cancel();
    within(http).await.unwrap().unwrap();
    served.stop().await;
}
