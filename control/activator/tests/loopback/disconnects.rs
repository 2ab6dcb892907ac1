//! Clients that close the connection early, and the activator's shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::rig::{Rig, TIMEOUT, backend, path_backend, text, until};

#[tokio::test]
async fn a_closed_connection_leaves_the_queue_although_its_body_is_unread() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let mut client = rig.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nthe beginning")
        .await;
    rig.parked(1).await;
    drop(client);
    rig.parked(0).await;
    until("no load is left", || rig.handle.take_stats().is_empty()).await;
}

#[tokio::test]
async fn a_connection_closed_before_the_response_frees_the_slot() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let rig = Rig::start();
    let cancelled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cancelled);
    let pod = backend(move |request: Request<Incoming>| {
        let dropped = Dropped(Arc::clone(&counted));
        async move {
            if request.uri().path() == "/forever" {
                std::future::pending::<()>().await;
            }
            std::mem::forget(dropped);
            Response::new(text("next"))
        }
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let mut client = rig.connect().await;
    client
        .send("GET /forever HTTP/1.1\r\nhost: a\r\n\r\n")
        .await;
    until("the request runs", || rig.stat().concurrency > 0.0).await;
    let next = rig.spawn_get("/next");
    rig.parked(1).await;
    drop(client);
    assert_eq!(next.await.unwrap().body, "next");
    until("the pod's request was cancelled", || {
        cancelled.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn a_connection_closed_during_the_response_frees_the_slot() {
    let rig = Rig::start();
    let pod = backend(|request: Request<Incoming>| async move {
        if request.uri().path() == "/next" {
            return Response::new(text("next"));
        }
        let endless = tokio_stream::iter(std::iter::repeat(Bytes::from_static(b"tick\n")));
        let endless = endless.throttle(Duration::from_millis(1));
        let frames = endless.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        Response::new(
            StreamBody::new(frames)
                .map_err(|never| match never {})
                .boxed(),
        )
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let mut client = rig.connect().await;
    client.send("GET /events HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    let next = rig.spawn_get("/next");
    rig.parked(1).await;
    drop(client);
    assert_eq!(next.await.unwrap().body, "next");
}

#[tokio::test]
async fn shutdown_refuses_new_clients_and_answers_parked_requests() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let waiting = rig.spawn_get("/parked");
    let mut idle = rig.connect().await;
    rig.parked(1).await;
    rig.shutdown.cancel();
    assert!(idle.closes().await);
    let wait = async { while TcpStream::connect(rig.address).await.is_ok() {} };
    timeout(TIMEOUT, wait).await.expect("still accepts");
    assert!(!rig.running.is_finished());
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    let reply = waiting.await.unwrap();
    assert_eq!(reply.body, "/parked");
    assert!(reply.has("connection: close"), "{reply:?}");
    timeout(TIMEOUT, rig.running)
        .await
        .expect("drained within the timeout")
        .unwrap();
}

#[tokio::test]
async fn shutdown_aborts_requests_after_the_drain_timeout() {
    let rig = Rig::start_with(|config| config.drain_timeout = Duration::from_millis(50));
    rig.configure(|_route| {});
    let mut stuck = rig.connect().await;
    stuck.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    rig.parked(1).await;
    rig.shutdown.cancel();
    timeout(TIMEOUT, rig.running)
        .await
        .expect("ended within the timeout")
        .unwrap();
    assert!(stuck.closes().await);
}
