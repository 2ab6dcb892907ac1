//! The `etcd-client` crate on a server in the same process, without a connection: the same checks and limits apply.

use dormouse_store::{
    Limits, Store,
    server::{Options, Server},
};
use etcd_client::{Channel, Client, ConnectOptions};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

use crate::{
    harness::{created, events, within},
    services::refusal,
};

/// A server without a listener.
fn server(store: &Store) -> Server {
    let none = Vec::<TcpListener>::new();
    let shutdown = CancellationToken::new();
    Server::new(none, store.clone(), Options::default(), shutdown).unwrap()
}

async fn client(server: &Server, options: Option<ConnectOptions>) -> Client {
    let service = server.in_process().map_err(BoxError::from);
    let channel = Channel::Custom(BoxCloneSyncService::new(service));
    Client::from_channel(channel, options).await.unwrap()
}

#[tokio::test]
async fn a_client_in_the_process_needs_a_user_where_one_is_needed() {
    let server = server(&Store::new());
    let mut anonymous = client(&server, None).await;
    anonymous.user_add("root", "secret", None).await.unwrap();
    anonymous.role_add("root").await.unwrap();
    anonymous.user_grant_role("root", "root").await.unwrap();
    anonymous.auth_enable().await.unwrap();
    let refused = refusal(anonymous.get("a", None).await);
    assert_eq!(refused.1, "etcdserver: user name is empty");
    let refused = refusal(anonymous.status().await);
    assert_eq!(refused.1, "etcdserver: user name is empty");
    let options = ConnectOptions::new().with_user("root", "secret");
    let mut root = client(&server, Some(options)).await;
    root.put("a", "1", None).await.unwrap();
}

#[tokio::test]
async fn a_request_from_the_process_has_a_limit_of_its_size() {
    let limits = Limits {
        request_bytes_max: 1_000,
        ..Limits::default()
    };
    let server = server(&Store::with_limits(limits));
    let mut client = client(&server, None).await;
    let refused = refusal(client.put("a", vec![0; 1_001], None).await);
    assert_eq!(refused.1, "etcdserver: request is too large");
}

#[tokio::test]
async fn a_watch_in_the_process_reads_events_as_its_client_does() {
    let server = server(&Store::new());
    let mut client = client(&server, None).await;
    let mut stream = client.watch("a", None).await.unwrap();
    created(&mut stream).await;
    for number in 1..=3 {
        client.put("a", number.to_string(), None).await.unwrap();
    }
    let seen = within(events(&mut stream, 3)).await;
    assert_eq!(
        seen.iter()
            .map(|(_, value)| value.as_str())
            .collect::<Vec<_>>(),
        ["1", "2", "3"]
    );
}
