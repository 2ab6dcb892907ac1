//! h2c on the same port, upgrades, serve mode, and the headers about the client.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::rig::{AnyBody, Rig, TIMEOUT, backend, http2_client, path_backend, text};

fn post(body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("http://app.test/echo").header("te", "trailers");
    request.body(Full::from(body)).unwrap()
}

/// Echoes the request, with a trailer as in gRPC.
async fn grpc_like(request: Request<Incoming>) -> Response<AnyBody> {
    assert_eq!(request.version(), http::Version::HTTP_2);
    assert_eq!(request.headers()["te"], "trailers");
    assert_eq!(request.uri().authority().unwrap(), "app.test");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
    Response::new(StreamBody::new(futures_frames(frames)).boxed())
}

fn futures_frames<T: Send + Sync + Unpin + 'static>(
    frames: [T; 2],
) -> impl tokio_stream::Stream<Item = T> + Send + Sync {
    tokio_stream::iter(frames)
}

#[tokio::test]
async fn an_h2c_request_is_parked_and_forwarded_as_h2c_with_trailers() {
    let mut rig = Rig::start();
    rig.configure(|_route| {});
    let (mut sender, _connection) = http2_client(rig.address).await;
    let response = tokio::spawn(sender.send_request(post("over h2c")));
    rig.report().await;
    let pod = backend(grpc_like).await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let response = response.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "over h2c");
    let again = sender.send_request(post("slot came back")).await.unwrap();
    assert_eq!(
        again.into_body().collect().await.unwrap().to_bytes(),
        "slot came back"
    );
}

#[tokio::test]
async fn a_reset_stream_leaves_the_queue_at_once() {
    let rig = Rig::start();
    rig.configure(|_route| {});
    let (mut sender, _connection) = http2_client(rig.address).await;
    let response = tokio::spawn(sender.send_request(post("")));
    rig.parked(1).await;
    response.abort();
    rig.parked(0).await;
}

#[tokio::test]
async fn an_upgraded_connection_relays_bytes_both_ways_and_keeps_its_slot() {
    let rig = Rig::start();
    let pod = backend(|mut request: Request<Incoming>| async move {
        if request.headers().get("upgrade").is_none() {
            return Response::new(text("plain"));
        }
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut echo = TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            while echo.read_exact(&mut word).await.is_ok() {
                echo.write_all(&word).await.unwrap();
            }
        });
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response
            .header("connection", "upgrade")
            .header("upgrade", "websocket");
        response.body(text("")).unwrap()
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let mut client = rig.connect().await;
    client
        .send("GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(
        head.to_ascii_lowercase().contains("upgrade: websocket"),
        "{head}"
    );
    for word in ["ping", "pong"] {
        client.send(word).await;
        let mut echoed = [0; 4];
        client.stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, word.as_bytes());
    }
    let plain = rig.spawn_get("/plain");
    rig.parked(1).await;
    drop(client);
    assert_eq!(plain.await.unwrap().body, "plain");
}

#[tokio::test]
async fn in_serve_mode_an_http1_client_is_asked_to_reconnect() {
    let rig = Rig::start();
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    let mut client = rig.connect().await;
    client.send("GET /kept HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(!client.reply().await.has("connection: close"));
    rig.configure(|route| (route.serving, route.backends) = (true, vec![pod]));
    client.send("GET /last HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!(reply.body, "/last");
    assert!(reply.has("connection: close"), "{reply:?}");
    assert!(client.closes().await);
    rig.configure(|route| route.backends = vec![pod]);
    assert!(!rig.get("/").await.has("connection: close"));
}

#[tokio::test]
async fn in_serve_mode_an_http2_client_gets_goaway() {
    let rig = Rig::start();
    let pod = backend(grpc_like).await;
    rig.configure(|route| route.backends = vec![pod]);
    let (mut idle, idle_connection) = http2_client(rig.address).await;
    idle.send_request(post(""))
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    rig.configure(|route| (route.serving, route.backends) = (true, vec![pod]));
    timeout(TIMEOUT, idle_connection)
        .await
        .expect("no GOAWAY")
        .unwrap()
        .unwrap();
    let (mut late, late_connection) = http2_client(rig.address).await;
    let response = late.send_request(post("late")).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "late"
    );
    timeout(TIMEOUT, late_connection)
        .await
        .expect("no GOAWAY")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_pod_gets_the_clients_address_and_no_hop_by_hop_headers() {
    let rig = Rig::start();
    let pod = backend(|request: Request<Incoming>| async move {
        let headers = request.headers();
        let line = format!(
            "{} {} {:?} {:?} {}",
            request.uri(),
            headers["x-forwarded-for"].to_str().unwrap(),
            headers.get("connection"),
            headers.get("x-hop"),
            headers["host"].to_str().unwrap(),
        );
        Response::builder()
            .header("connection", "x-theirs")
            .header("x-theirs", "1")
            .body(text(line))
            .unwrap()
    })
    .await;
    rig.configure(|route| route.backends = vec![pod]);
    let mut client = rig.connect().await;
    client.send("GET /a?b=c HTTP/1.1\r\nhost: docs\r\nconnection: x-hop\r\nx-hop: 1\r\nx-forwarded-for: 2001:db8::9\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!(reply.body, "/a?b=c 2001:db8::9, ::1 None None docs");
    assert!(!reply.head.contains("x-theirs"), "{reply:?}");
}

#[tokio::test]
async fn the_response_to_a_head_request_keeps_its_content_length() {
    let rig = Rig::start();
    let pod = backend(|_request| async {
        let empty = Empty::<Bytes>::new()
            .map_err(|never| match never {})
            .boxed();
        Response::builder()
            .header("content-length", "1234")
            .body(empty)
            .unwrap()
    })
    .await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![pod]));
    let mut client = rig.connect().await;
    for _ in 0..3 {
        client.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(
            client
                .head()
                .await
                .to_ascii_lowercase()
                .contains("content-length: 1234")
        );
    }
}
