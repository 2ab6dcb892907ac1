//! A control that its store does not confirm.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_activator::link;
use dormouse_apps::epoch;
use dormouse_cluster::{Channel, Client, channel};
use dormouse_fleet::ServerConfig;
use dormouse_fleet::proto::NodeConfig;
use dormouse_store::Store;
use dormouse_store::server::{Options, Server};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tower::{ServiceExt, service_fn};

const TIMEOUT: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_millis(300);

/// A client of an empty store, which is not reached while this is set.
async fn store(is_cut: Arc<AtomicBool>) -> Client {
    let none = Vec::<TcpListener>::new();
    let shutdown = CancellationToken::new();
    let server = Server::new(none, Store::new(), Options::default(), shutdown).unwrap();
    let reached = channel::in_process(server.in_process());
    let channel = Channel::new(service_fn(move |request| {
        let (reached, is_cut) = (reached.clone(), Arc::clone(&is_cut));
        async move {
            if is_cut.load(Ordering::SeqCst) {
                return Err(Status::unavailable("cut off"));
            }
            reached.oneshot(request).await
        }
    }));
    Client::over(channel).await.unwrap()
}

#[tokio::test]
async fn activators_are_kept_only_while_the_store_confirms_the_epoch() {
    let is_cut = Arc::new(AtomicBool::new(false));
    let client = store(Arc::clone(&is_cut)).await;
    let taken = epoch::take(&client).await.unwrap();
    let config = ServerConfig::new(taken, NodeConfig::default());
    let shutdown = CancellationToken::new();
    let (fleet, _fleet_events) = dormouse_fleet::start(config, shutdown.clone());
    let (hub, _link_events) = link::start(taken);
    let link = hub.clone();
    let held = tokio::spawn(async move { epoch::hold(&client, taken, LEASE, &fleet, &link).await });
    assert!(hub.is_confirmed());
    is_cut.store(true, Ordering::SeqCst);
    timeout(TIMEOUT, hub.unconfirmed()).await.unwrap();
    is_cut.store(false, Ordering::SeqCst);
    let again = async {
        while !hub.is_confirmed() {
            sleep(LEASE / 30).await;
        }
    };
    timeout(TIMEOUT, again).await.unwrap();
    assert!(!held.is_finished());
}
