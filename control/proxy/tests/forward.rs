//! The hop between a minimal proxy and pods that respond late, not at all, or wrongly.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on says so by panicking"
)]

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proxy::{Backend, ConnectionLimit, Limits, Outbound, forward};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const TIMEOUT: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

async fn listen() -> (TcpListener, SocketAddrV6) {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    (listener, address)
}

fn backend(address: SocketAddrV6, limits: Limits) -> Arc<Backend> {
    Backend::new(address, limits, &ConnectionLimit::new(100))
}

/// A client's connection to a proxy that forwards every request to one backend, with `deadline`.
async fn proxy(backend: Arc<Backend>, deadline: Duration) -> TcpStream {
    let (listener, address) = listen().await;
    let client = TcpStream::connect(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let service = service_fn(move |request: Request<Incoming>| {
        let backend = Arc::clone(&backend);
        async move {
            let outbound = Outbound::new(request, Ipv6Addr::LOCALHOST.into());
            let forwarded = forward(outbound, &backend, Instant::now() + deadline, ()).await;
            let response = forwarded.map(|response| response.map(Either::Left));
            Ok::<_, hyper::Error>(response.unwrap_or_else(|failure| {
                let unsent = failure.unsent.is_some();
                let text = Full::<Bytes>::from(format!("{unsent} {}", failure.error));
                let mut response = Response::new(Either::Right(text.boxed()));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }))
        }
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    client
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let read = async {
        while !text.ends_with(end.as_bytes()) {
            text.push(stream.read_u8().await.expect("closed before the end"));
        }
    };
    timeout(TIMEOUT, read)
        .await
        .expect("the end within the timeout");
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_body_past_the_deadline_is_aborted_without_a_regular_end() {
    let (pods, address) = listen().await;
    let backend = backend(address, Limits::default());
    let mut client = proxy(backend, Duration::from_millis(300)).await;
    client.write_all(REQUEST).await.unwrap();
    let (mut pod, _) = pods.accept().await.unwrap();
    read_until(&mut pod, "\r\n\r\n").await;
    pod.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        .await
        .unwrap();
    read_until(&mut client, "hello\r\n").await;
    let mut rest = Vec::new();
    drop(
        timeout(TIMEOUT, client.read_to_end(&mut rest))
            .await
            .expect("aborted within the timeout"),
    );
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "a shortened body looks complete"
    );
    let closed = timeout(TIMEOUT, pod.read(&mut [0; 8]))
        .await
        .expect("the pod's side stays open");
    assert_eq!(closed.unwrap(), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let (pods, address) = listen().await;
    let idle_timeout = Duration::from_millis(50);
    let backend = backend(
        address,
        Limits {
            idle_timeout,
            ..Limits::default()
        },
    );
    let mut client = proxy(Arc::clone(&backend), TIMEOUT).await;
    client.write_all(REQUEST).await.unwrap();
    let (mut pod, _) = pods.accept().await.unwrap();
    read_until(&mut pod, "\r\n\r\n").await;
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    read_until(&mut client, "ok").await;
    let closed = timeout(TIMEOUT, pod.read(&mut [0; 8]))
        .await
        .expect("never closed");
    assert_eq!(closed.unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_reached_no_pod_is_returned() {
    let (pods, address) = listen().await;
    drop(pods);
    let mut client = proxy(backend(address, Limits::default()), TIMEOUT).await;
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")
        .await
        .unwrap();
    let text = format!("true failed to connect to {address}");
    let reply = read_until(&mut client, &text).await;
    assert!(reply.starts_with("HTTP/1.1 502"), "{reply}");
}

#[tokio::test]
async fn a_protocol_switch_without_a_request_is_refused() {
    let (pods, address) = listen().await;
    let mut client = proxy(backend(address, Limits::default()), TIMEOUT).await;
    client.write_all(REQUEST).await.unwrap();
    let (mut pod, _) = pods.accept().await.unwrap();
    read_until(&mut pod, "\r\n\r\n").await;
    pod.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        .await
        .unwrap();
    let reply = read_until(&mut client, "without a request for it").await;
    assert!(reply.contains("false "), "{reply}");
}

#[tokio::test]
async fn a_connection_above_the_limit_of_all_backends_is_not_opened() {
    let (pods, address) = listen().await;
    let limit = ConnectionLimit::new(1);
    let first = Backend::new(address, Limits::default(), &limit);
    let second = Backend::new(address, Limits::default(), &limit);
    let mut holder = proxy(Arc::clone(&first), TIMEOUT).await;
    holder.write_all(REQUEST).await.unwrap();
    let (mut pod, _) = pods.accept().await.unwrap();
    read_until(&mut pod, "\r\n\r\n").await;
    let mut client = proxy(Arc::clone(&second), TIMEOUT).await;
    client.write_all(REQUEST).await.unwrap();
    let reply = read_until(&mut client, "are open").await;
    assert!(reply.contains("true failed to connect"), "{reply}");
    // An idle connection is closed while others may need its place.
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    read_until(&mut holder, "ok").await;
    assert_eq!(pod.read(&mut [0; 8]).await.unwrap(), 0);
    let mut client = proxy(second, TIMEOUT).await;
    client.write_all(REQUEST).await.unwrap();
    let (mut pod, _) = pods.accept().await.unwrap();
    read_until(&mut pod, "\r\n\r\n").await;
}
