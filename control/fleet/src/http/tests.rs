//! Connections without requests, and with responses that are not read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::{Body, Bytes};
use axum::routing::get;
use dormouse_trust::{Authority, Current, Identity, Validity, client, server};
use futures::stream::{self, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

const LONGEST: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The preface of HTTP/2, settings with an initial window of so many bytes, and headers of `GET /`.
fn with_window(bytes: u8) -> Vec<u8> {
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, bytes];
    let headers = [0, 0, 8, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x86, 0x41, 3];
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    [preface.as_slice(), &settings, &headers, b"api"].concat()
}

fn tls() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let authority = Authority::create(SystemTime::now()).unwrap();
    let validity = Validity::issued(SystemTime::now(), Duration::from_hours(1), None);
    let identity = Identity::control("up").unwrap();
    let issued = authority.server(&identity, &["::1".to_owned()], validity);
    let current = Current::new(issued.unwrap()).unwrap();
    let authorities = [authority.certificate().clone()];
    let clients = dormouse_trust::Clients::Requested;
    let server = server::config(current, &authorities, clients).unwrap();
    (server, client::config(&authorities, None).unwrap())
}

fn spawn(incoming: Incoming, router: Router) {
    let router = router.layer(from_fn(count));
    let service = router.into_make_service_with_connect_info::<Peer>();
    tokio::spawn(async move { axum::serve(incoming, service).await });
}

/// A server whose responses have these frames, and a channel that ends when a response is dropped.
async fn served(frames: fn() -> stream::BoxStream<'static, Bytes>) -> (TcpStream, Receiver<()>) {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = Incoming::new(listener, 10).closing_unread(LONGEST);
    let (held, dropped) = channel(1);
    let answer = move |held: Sender<()>| async move {
        Body::from_stream(frames().map(move |frame| {
            let _held = &held;
            Ok::<_, Infallible>(frame)
        }))
    };
    let once = Arc::new(parking_lot::Mutex::new(Some(held)));
    let route = get(move || answer(once.lock().take().unwrap()));
    spawn(incoming, Router::new().route("/", route));
    (TcpStream::connect(address).await.unwrap(), dropped)
}

#[tokio::test]
async fn an_anonymous_connection_is_closed_without_a_request_and_open_during_a_watch() {
    let (server, client) = tls();
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = Incoming::new(listener, 100)
        .secured(server)
        .closing_idle(LONGEST)
        .closing_unread(LONGEST);
    let watch = || async {
        let first = stream::iter([Ok::<_, io::Error>("first")]);
        Body::from_stream(first.chain(stream::pending()))
    };
    spawn(incoming, Router::new().route("/watch", get(watch)));
    let connect = async || -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("::1").unwrap();
        let connector = TlsConnector::from(client.clone());
        connector.connect(name, stream).await.unwrap()
    };
    let mut watching = connect().await;
    let request = b"GET /watch HTTP/1.1\r\nhost: api\r\n\r\n";
    watching.write_all(request).await.unwrap();
    let mut read = Vec::new();
    while !read.windows(5).any(|part| part == b"first") {
        assert_ne!(watching.read_buf(&mut read).await.unwrap(), 0);
    }
    let mut silent = connect().await;
    let ended = timeout(TIMEOUT, silent.read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let more = timeout(2 * LONGEST, watching.read(&mut [0])).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_connection_whose_client_does_not_read_a_response_is_closed() {
    let (mut client, mut dropped) = served(|| {
        let frame = Bytes::from(vec![0; 1 << 20]);
        stream::repeat(frame).boxed()
    })
    .await;
    let request = b"GET / HTTP/1.1\r\nhost: api\r\n\r\n";
    client.write_all(request).await.unwrap();
    let held = timeout(TIMEOUT, dropped.recv()).await;
    assert_eq!(held.expect("the response is dropped"), None);
}

#[tokio::test]
async fn a_connection_whose_client_gives_a_response_too_little_window_is_closed() {
    for window in [0, 1] {
        let (mut client, mut dropped) = served(|| {
            let frames = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
            stream::iter(frames).boxed()
        })
        .await;
        client.write_all(&with_window(window)).await.unwrap();
        let held = timeout(TIMEOUT, dropped.recv()).await;
        assert_eq!(held.expect("the response is dropped"), None);
        let end = timeout(TIMEOUT, client.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "the connection is open");
    }
}
