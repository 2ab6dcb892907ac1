//! Creations through a connection that loses responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_store::{Store, server};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;

/// A store, and a client whose connection ends before it gets the response to the first pod's write, once that is asked for.
struct Lossy {
    client: Client,
    lose: Arc<AtomicBool>,
    _shutdown: DropGuard,
}

impl Lossy {
    async fn start() -> Self {
        let shutdown = CancellationToken::new();
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let store = listener.local_addr().unwrap();
        tokio::spawn(server::serve(listener, Store::new(), shutdown.clone()));
        let front = TcpListener::bind("[::1]:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let lose = Arc::new(AtomicBool::new(false));
        let losing = Arc::clone(&lose);
        let direct = Client::connect(&format!("http://{store}")).await.unwrap();
        tokio::spawn(async move {
            loop {
                let (from, _) = front.accept().await.unwrap();
                let to = TcpStream::connect(store).await.unwrap();
                tokio::spawn(pass([from, to], direct.clone(), Arc::clone(&losing)));
            }
        });
        let client = Client::connect(&format!("http://{address}")).await.unwrap();
        // The connection stands before a response is lost.
        client.range("/", 0).await.unwrap();
        Self {
            client,
            lose,
            _shutdown: shutdown.drop_guard(),
        }
    }

    async fn pods(&self) -> Vec<Pod> {
        self.client.list::<Pod>(None).await.unwrap().items
    }
}

/// Passes bytes both ways. With `lose`, the connection ends before anything is passed to the client after a pod was written.
async fn pass([client, store]: [TcpStream; 2], direct: Client, lose: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_store, mut to_store) = store.into_split();
    let upwards = tokio::spawn(async move {
        let _ended = tokio::io::copy(&mut from_client, &mut to_store).await;
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from_store.read(&mut buffer).await {
        let losing = lose.load(Ordering::SeqCst);
        let written = losing && !direct.range(Pod::PREFIX, 0).await.unwrap().0.is_empty();
        if written {
            lose.store(false, Ordering::SeqCst);
            break;
        }
        if to_client.write_all(&buffer[..len]).await.is_err() {
            break;
        }
    }
    upwards.abort();
}

fn pod(uid: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some("web-1".to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}

#[tokio::test]
async fn a_pod_that_was_written_without_a_response_is_created_once() {
    let lossy = Lossy::start().await;
    lossy.lose.store(true, Ordering::SeqCst);
    create(&lossy.client, &pod("a")).await.unwrap();
    assert!(!lossy.lose.load(Ordering::SeqCst), "no response was lost");
    let pods = lossy.pods().await;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].metadata.uid.as_deref(), Some("a"));
}

#[tokio::test]
async fn another_pod_of_the_same_name_is_not_adopted() {
    let lossy = Lossy::start().await;
    create(&lossy.client, &pod("a")).await.unwrap();
    let refused = create(&lossy.client, &pod("b")).await.unwrap_err();
    assert!(
        matches!(refused, ClientError::AlreadyExists { .. }),
        "{refused}"
    );
    assert_eq!(lossy.pods().await[0].metadata.uid.as_deref(), Some("a"));
}
