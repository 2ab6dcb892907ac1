//! The client and the watch of a store in the same process, without a connection.
#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::{pin::pin, time::Duration};

use dormouse_cluster::{
    Client, ClientError, Guard, Key, Object, channel,
    client::{KeyRange, Previous},
};
use dormouse_store::{
    Store,
    server::{Options, Server},
};
use futures::StreamExt;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

/// Longer than any operation of these tests takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

struct World {
    client: Client,
    shutdown: CancellationToken,
    port: u16,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let server = Server::new(
            vec![listener],
            Store::new(),
            Options::default(),
            shutdown.clone(),
        )
        .unwrap();
        let client = Client::over(channel::in_process(server.in_process()));
        let client = client.await.unwrap();
        tokio::spawn(server.run());
        Self {
            client,
            shutdown,
            port,
        }
    }
}

fn pod(name: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

#[tokio::test]
async fn a_connection_and_the_process_see_one_store() {
    let world = World::start().await;
    let range = KeyRange::of_prefix(Pod::PREFIX);
    let changes = world.client.watch(&range, 0, Previous::LeftOut);
    let mut changes = pin!(changes.await.unwrap());
    let url = format!("http://[::1]:{}", world.port);
    let remote = Client::connect(&url).await.unwrap();
    let made = remote.create(&pod("a")).await.unwrap();
    let seen = timeout(DEADLINE, changes.next()).await.unwrap();
    let seen = seen.unwrap().unwrap();
    assert_eq!(seen[0].path, Pod::path(&made.key()).into_bytes());
    assert_eq!(seen[0].revision, made.revision());
    let found: Option<Pod> = world.client.get(&made.key()).await.unwrap();
    assert_eq!(found, Some(made.clone()));
    let stale = Guard::at(made.revision() + 1);
    let refused = world.client.update(made.clone(), &stale).await;
    assert!(matches!(refused, Err(ClientError::Conflict { .. })));
    let written = world.client.update(made, &Guard::default()).await.unwrap();
    world
        .client
        .delete::<Pod>(&written.key(), &Guard::default())
        .await
        .unwrap();
    let gone: Option<Pod> = remote.get(&Key::new("shop", "a")).await.unwrap();
    assert_eq!(gone, None);
}

#[tokio::test]
async fn the_end_of_the_server_ends_watches_and_refuses_calls() {
    let world = World::start().await;
    let range = KeyRange::of_prefix(Pod::PREFIX);
    let changes = world.client.watch(&range, 0, Previous::LeftOut);
    let mut changes = pin!(changes.await.unwrap());
    world.shutdown.cancel();
    assert!(timeout(DEADLINE, changes.next()).await.unwrap().is_none());
    let refused = world.client.create(&pod("a")).await;
    assert!(matches!(refused, Err(ClientError::Unreachable(_))));
}
