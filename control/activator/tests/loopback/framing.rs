//! Bodies keep their content when a message has an unusual framing.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{Rig, backend, path_backend, text};

/// A pod that responds with the request's body in the field `x-body`.
async fn body_in_head() -> SocketAddrV6 {
    backend(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::builder()
            .header("x-body", &*body)
            .body(text(""))
            .unwrap()
    })
    .await
}

#[tokio::test]
async fn get_and_head_keep_a_chunked_body() {
    let rig = Rig::start();
    let pod = body_in_head().await;
    rig.configure(|route| route.backends = vec![pod]);
    for method in ["GET", "HEAD", "POST"] {
        let mut client = rig.connect().await;
        for body in ["first", "again"] {
            client
                .send(&format!(
                    "{method} / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{body}\r\n0\r\n\r\n"
                ))
                .await;
            let head = client.head().await.to_ascii_lowercase();
            assert!(
                head.contains(&format!("x-body: {body}")),
                "{method}: {head}"
            );
        }
    }
}

#[tokio::test]
async fn get_without_a_body_is_forwarded_without_one() {
    let rig = Rig::start();
    let pod = backend(|request: Request<Incoming>| async move {
        let framing = request.headers().get("transfer-encoding");
        Response::new(text(format!("{framing:?}")))
    })
    .await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(rig.get("/").await.body, "None");
}

/// The reply, in lower case, when the pod responds with `response`.
async fn forwarded(response: &str) -> String {
    let rig = Rig::start();
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    rig.configure(|route| route.backends = vec![address]);
    let mut client = rig.connect().await;
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await;
    let (mut pod, _) = listener.accept().await.unwrap();
    assert!(pod.read(&mut [0; 1024]).await.unwrap() > 0);
    pod.write_all(response.as_bytes()).await.unwrap();
    let mut reply = String::new();
    client.stream.read_to_string(&mut reply).await.unwrap();
    reply.to_ascii_lowercase()
}

#[tokio::test]
async fn a_pods_content_length_beside_chunked_does_not_cut_the_body() {
    let reply = forwarded(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    assert!(reply.contains("transfer-encoding: chunked"), "{reply}");
    assert!(!reply.contains("content-length"), "{reply}");
    assert!(reply.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{reply}");
}

#[tokio::test]
async fn a_pods_body_does_not_lose_its_transfer_coding() {
    let reply = forwarded(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    assert!(reply.starts_with("http/1.1 502 "), "{reply}");
    assert!(reply.contains("transfer coding"), "{reply}");
}

#[tokio::test]
async fn a_request_with_a_transfer_coding_besides_chunked_is_not_implemented() {
    let rig = Rig::start();
    let pod = body_in_head().await;
    rig.configure(|route| route.backends = vec![pod]);
    for fields in [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked",
    ] {
        let mut client = rig.connect().await;
        client
            .send(&format!(
                "POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            ))
            .await;
        let reply = client.reply().await;
        assert_eq!(reply.status(), 501, "{reply:?}");
        assert!(reply.body.contains("transfer coding"), "{reply:?}");
    }
}

#[tokio::test]
async fn the_connection_of_a_request_with_two_lengths_is_closed_after_the_response() {
    let rig = Rig::start();
    let pod = path_backend().await;
    rig.configure(|route| route.backends = vec![pod]);
    let chunked = "transfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    for fields in [
        "content-length: 5\r\n",
        "Content-Length: 0\r\nx-other: 1\r\n",
    ] {
        let mut client = rig.connect().await;
        client.send("GET /first HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(client.reply().await.body, "/first");
        // The client's next request, or one that is only in the body by the other length.
        client
            .send(&format!("POST /both HTTP/1.1\r\nhost: a\r\n{fields}{chunked}GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        let reply = client.reply().await;
        assert_eq!(reply.body, "/both");
        assert!(reply.has("connection: close"), "{reply:?}");
        let mut rest = Vec::new();
        drop(client.stream.read_to_end(&mut rest).await);
        assert_eq!(rest, b"", "another request was answered");
    }
    let mut client = rig.connect().await;
    for _ in 0..2 {
        client
            .send(&format!("POST /chunked HTTP/1.1\r\nhost: a\r\n{chunked}"))
            .await;
        let reply = client.reply().await;
        assert_eq!(reply.body, "/chunked");
        assert!(!reply.has("connection: close"), "{reply:?}");
    }
}
