//! The host that a request identifies.

use http::{Request, Response};
use hyper::body::Incoming;

use crate::rig::{Rig, backend, http2_client, text};

/// A rig whose pod responds with the host that it was sent.
async fn start() -> Rig {
    let rig = Rig::start();
    let pod = backend(|request: Request<Incoming>| async move {
        let host = request.headers().get("host").cloned();
        Response::new(text(
            host.map_or_else(Vec::new, |host| host.as_bytes().to_vec()),
        ))
    })
    .await;
    rig.configure(|route| route.backends = vec![pod]);
    rig
}

#[tokio::test]
async fn a_request_without_one_valid_host_is_a_bad_request() {
    let rig = start().await;
    for (head, reason) in [
        ("GET / HTTP/1.1", "no Host"),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b", "more than one Host"),
        ("GET / HTTP/1.1\r\nhost: a\r\nHost: a", "more than one Host"),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: a", "more than one Host"),
        ("GET / HTTP/1.1\r\nhost: a/b", "malformed"),
        ("GET http://a/ HTTP/1.1", "no Host"),
    ] {
        let mut client = rig.connect().await;
        client.send(&format!("{head}\r\n\r\n")).await;
        let reply = client.reply().await;
        assert_eq!(reply.status(), 400, "{head}: {reply:?}");
        assert!(reply.body.contains(reason), "{head}: {reply:?}");
        assert!(client.closes().await);
    }
}

#[tokio::test]
async fn the_host_of_an_absolute_target_takes_precedence() {
    let rig = start().await;
    for (head, host) in [
        (
            "GET http://target.test/ HTTP/1.1\r\nhost: other.test",
            "target.test",
        ),
        ("GET / HTTP/1.1\r\nhost: a.test:8080", "a.test:8080"),
        ("GET / HTTP/1.1\r\nhost:", ""),
        ("GET / HTTP/1.0", ""),
    ] {
        let mut client = rig.connect().await;
        client.send(&format!("{head}\r\n\r\n")).await;
        let reply = client.reply().await;
        assert_eq!((reply.status(), reply.body.as_str()), (200, host), "{head}");
    }
}

#[tokio::test]
async fn a_host_that_differs_from_the_authority_of_http2_is_a_bad_request() {
    let rig = start().await;
    let (mut sender, _connection) = http2_client(rig.address).await;
    for (host, status) in [("other.test", 400), ("APP.test:80", 200)] {
        let request = Request::get("http://app.test/").header("host", host);
        let request = request.body("".into()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{host}");
    }
}
