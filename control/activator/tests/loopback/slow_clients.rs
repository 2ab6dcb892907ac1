//! Clients that do not read their responses.

use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::rig::{AnyBody, Rig, TIMEOUT, backend, http2_client, text};

/// An endless body at `/endless`, the path elsewhere.
async fn endless(request: Request<Incoming>) -> Response<AnyBody> {
    if request.uri().path() != "/endless" {
        return Response::new(text(request.uri().path().to_owned()));
    }
    let chunks = std::iter::repeat_with(|| {
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))
    });
    let body = StreamBody::new(tokio_stream::iter(chunks));
    Response::new(body.map_err(|never| match never {}).boxed())
}

/// A pod that serves h2c only, with a limit of streams for each connection.
async fn http2_pod(streams_max: u32) -> SocketAddrV6 {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(|request| async {
                Ok::<_, Infallible>(endless(request).await)
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(streams_max);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn get(path: &str) -> Request<http_body_util::Full<Bytes>> {
    let request = Request::get(format!("http://app.test{path}"));
    request.body(Bytes::new().into()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_clients_that_do_not_read_stop_no_other_client_of_their_pod() {
    for (streams_max, clients) in [(200, 150), (4, 20)] {
        let rig = Rig::start();
        let pod = http2_pod(streams_max).await;
        rig.configure(|route| route.backends = vec![pod]);
        let mut stuck = Vec::new();
        for _ in 0..clients {
            let (mut sender, connection) = http2_client(rig.address).await;
            let response = timeout(TIMEOUT, sender.send_request(get("/endless"))).await;
            let response = response.expect("a head within the timeout").unwrap();
            stuck.push((sender, connection, response));
        }
        // The windows of all the stuck responses fill up.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..20 {
            let (mut sender, _connection) = http2_client(rig.address).await;
            let response = timeout(TIMEOUT, sender.send_request(get("/other"))).await;
            let response = response.expect("other clients are stopped").unwrap();
            let body = timeout(TIMEOUT, response.into_body().collect()).await;
            assert_eq!(body.expect("a body").unwrap().to_bytes(), "/other");
        }
    }
}

/// A rig whose pod has one slot, and in which requests have `timeout`.
fn one_slot(rig: &Rig, pod: SocketAddrV6, timeout: Duration) {
    rig.configure(|route| {
        (route.container_concurrency, route.backends) = (1, vec![pod]);
        route.timeout = timeout;
    });
}

#[tokio::test]
async fn an_http1_client_that_does_not_read_loses_its_slot_at_the_deadline() {
    let rig = Rig::start();
    let pod = backend(endless).await;
    one_slot(&rig, pod, Duration::from_millis(500));
    let mut stuck = rig.connect().await;
    stuck.send("GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(stuck.head().await.starts_with("HTTP/1.1 200"));
    one_slot(&rig, pod, TIMEOUT);
    assert_eq!(rig.get("/next").await.body, "/next");
    assert!(stuck.closes().await, "the connection stays open");
}

#[tokio::test]
async fn an_http2_client_that_does_not_read_loses_its_slot_at_the_deadline() {
    let rig = Rig::start();
    let pod = backend(endless).await;
    one_slot(&rig, pod, Duration::from_millis(500));
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    // The stuck response fills its stream's window, not the connection's.
    builder.initial_connection_window_size(1 << 20);
    let handshake = builder.handshake::<_, Bytes>(stream);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://app.test{path}");
        Request::get(uri).body(()).unwrap()
    };
    let (stuck, _) = sender.send_request(request("/endless"), true).unwrap();
    let stuck = stuck.await.unwrap();
    assert_eq!(stuck.status(), 200);
    let mut stuck = stuck.into_body();
    one_slot(&rig, pod, TIMEOUT);
    let (other, _) = sender.send_request(request("/other"), true).unwrap();
    let mut other = timeout(TIMEOUT, other).await.unwrap().unwrap().into_body();
    assert_eq!(other.data().await.unwrap().unwrap(), "/other");
    let reset = async {
        loop {
            if let Err(error) = stuck.data().await.expect("a regular end") {
                return error;
            }
        }
    };
    let reset = timeout(TIMEOUT, reset)
        .await
        .expect("the stream stays open");
    assert!(reset.is_reset(), "{reset}");
}

#[tokio::test]
async fn a_client_that_reads_keeps_its_connection_past_many_deadlines() {
    let rig = Rig::start();
    let pod = backend(endless).await;
    rig.configure(|route| {
        route.backends = vec![pod];
        route.timeout = Duration::from_millis(300);
    });
    let mut client = rig.connect().await;
    for _ in 0..5 {
        client.send("GET /kept HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(client.reply().await.body, "/kept");
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn parked_uploads_of_an_http2_client_do_not_stop_the_one_in_flight() {
    const BODY_BYTES: usize = 300_000;
    let rig = Rig::start();
    rig.configure(|_route| {});
    let (sender, _connection) = http2_client(rig.address).await;
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let mut sender = sender.clone();
        let request = Request::post("http://app.test/").body(vec![b'x'; BODY_BYTES].into());
        waiting.push(tokio::spawn(sender.send_request(request.unwrap())));
    }
    rig.parked(20).await;
    let pod = backend(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(body.len().to_string()))
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    for response in waiting {
        let response = timeout(TIMEOUT, response)
            .await
            .expect("the upload stopped");
        assert_eq!(response.unwrap().unwrap().status(), 200);
    }
}
