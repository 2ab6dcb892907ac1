//! Sockets of the file system as listeners.

use std::path::Path;

use dormouse_store::{
    Store,
    server::{self, Listener, Options},
};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::harness::within;

async fn check(path: &Path) {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    let mut client = HealthClient::new(within(endpoint.connect()).await.unwrap());
    let answer = within(client.check(HealthCheckRequest::default())).await;
    assert_eq!(answer.unwrap().into_inner().status, 1, "SERVING");
}

#[tokio::test]
async fn a_socket_is_served_and_the_one_of_a_process_that_ended_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sock");
    // Without its listener, the file of the socket stays.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::unix(&path).unwrap();
    assert_eq!(listener.address(), path.display().to_string());
    let shutdown = CancellationToken::new();
    let options = Options::default();
    let served = server::serve_with(vec![listener], Store::new(), options, shutdown.clone());
    let served = tokio::spawn(served);
    check(&path).await;
    let put = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &format!("unix://{}", path.display())])
        .args(["put", "key", "value"])
        .kill_on_drop(true)
        .output();
    let put = within(put)
        .await
        .expect("etcdctl is missing: apt-get install etcd-client");
    assert_eq!(String::from_utf8_lossy(&put.stdout), "OK\n", "{put:?}");
    shutdown.cancel();
    within(served).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, "data").unwrap();
    assert!(Listener::unix(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
}
