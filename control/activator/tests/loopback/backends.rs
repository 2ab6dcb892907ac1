//! Pods that refuse connections, close them early or start late.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use http::Response;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{Rig, backend, path_backend, reserve, text};

fn local(port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0)
}

#[tokio::test]
async fn a_request_refused_by_a_backend_is_sent_to_the_next_with_its_body() {
    let rig = Rig::start();
    let (_refusing, port) = reserve();
    let echo = backend(|request: http::Request<hyper::body::Incoming>| async move {
        Response::new(text(
            request.into_body().collect().await.unwrap().to_bytes(),
        ))
    })
    .await;
    rig.configure(|route| route.backends = vec![local(port), echo]);
    for _ in 0..4 {
        let mut client = rig.connect().await;
        client
            .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello")
            .await;
        let reply = client.reply().await;
        assert_eq!((reply.status(), reply.body.as_str()), (200, "hello"));
    }
}

#[tokio::test]
async fn a_pod_that_listens_late_is_retried() {
    let rig = Rig::start();
    let (socket, port) = reserve();
    rig.configure(|route| route.backends = vec![local(port)]);
    let reply = rig.spawn_get("/");
    // In flight and not parked: the request is in an attempt or between two.
    crate::rig::until("the request came", || rig.stat().concurrency > 0.0).await;
    socket.listen(16).unwrap();
    socket.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(socket.into()).unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut request = [0; 1024];
    assert!(pod.read(&mut request).await.unwrap() > 0);
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
        .await
        .unwrap();
    assert_eq!(reply.await.unwrap().body, "late");
}

#[tokio::test]
async fn a_request_that_no_backend_accepts_is_answered_bad_gateway() {
    let rig = Rig::start();
    let (_refusing, port) = reserve();
    rig.configure(|route| route.backends = vec![local(port)]);
    let reply = rig.get("/").await;
    assert_eq!(reply.status(), 502);
    assert!(
        reply
            .body
            .contains("default/test failed: failed to connect to [::1]:"),
        "{reply:?}"
    );
    assert!(reply.body.contains("refused"), "{reply:?}");
}

#[tokio::test]
async fn a_post_is_not_repeated_when_the_backend_closes_the_connection() {
    let rig = Rig::start();
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    let good = path_backend().await;
    rig.configure(|route| (route.container_concurrency, route.backends) = (1, vec![address]));
    let mut client = rig.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello")
        .await;
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"hello") {
        request.push(pod.read_u8().await.unwrap());
    }
    rig.configure(|route| route.backends = vec![good]);
    drop(pod);
    assert_eq!(client.reply().await.status(), 502);
}

#[tokio::test]
async fn no_request_is_lost_when_a_pod_closes_idle_connections() {
    let rig = Rig::start();
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    tokio::spawn(async move {
        loop {
            let (mut pod, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            if pod.read(&mut request).await.unwrap_or(0) > 0 {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                pod.write_all(answer).await.unwrap();
            }
        }
    });
    rig.configure(|route| route.backends = vec![address]);
    let mut client = rig.connect().await;
    for _ in 0..50 {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(client.reply().await.body, "ok");
    }
}

#[tokio::test]
async fn idle_connections_are_reused_and_closed_with_their_pod() {
    let rig = Rig::start();
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    rig.configure(|route| route.backends = vec![address]);
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (mut pod, _) = listener.accept().await.unwrap();
    for _ in 0..3 {
        let mut request = [0; 1024];
        assert!(pod.read(&mut request).await.unwrap() > 0);
        pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await
            .unwrap();
        assert_eq!(client.reply().await.body, "ok");
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    }
    let mut request = [0; 1024];
    assert!(pod.read(&mut request).await.unwrap() > 0);
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    assert_eq!(client.reply().await.body, "ok");
    rig.configure(|_route| {});
    assert_eq!(
        pod.read(&mut request).await.unwrap(),
        0,
        "the connection outlived its pod"
    );
}
