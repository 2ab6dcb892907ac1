//! A request is sent a second time only if the pod has not acted on the first.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{Rig, http2_client};

async fn listen() -> (TcpListener, SocketAddrV6) {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let SocketAddr::V6(address) = listener.local_addr().unwrap() else {
        unreachable!()
    };
    (listener, address)
}

/// A pod that resets its first requests with `resets` and responds to the others; the number of its requests.
async fn resetting_pod(resets: &[Reason]) -> (SocketAddrV6, Arc<AtomicUsize>) {
    let (listener, address) = listen().await;
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let resets = Arc::new(std::sync::Mutex::new(VecDeque::from(resets.to_vec())));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (counted, resets) = (Arc::clone(&counted), Arc::clone(&resets));
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    match resets.lock().unwrap().pop_front() {
                        Some(reason) => respond.send_reset(reason),
                        None => drop(respond.send_response(Response::new(()), true).unwrap()),
                    }
                }
            });
        }
    });
    (address, requests)
}

/// A request without a body over h2.
async fn send(rig: &Rig, method: &str) -> StatusCode {
    let (mut sender, _connection) = http2_client(rig.address).await;
    let request = Request::builder().method(method).uri("http://app.test/");
    let request = request.body(Bytes::new().into()).unwrap();
    sender.send_request(request).await.unwrap().status()
}

#[tokio::test]
async fn a_request_that_the_pod_resets_reaches_it_once() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::NO_ERROR] {
        let rig = Rig::start();
        let (pod, requests) = resetting_pod(&[reason; 30]).await;
        rig.configure(|route| route.backends = vec![pod]);
        assert_eq!(send(&rig, "GET").await, 502, "{reason:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn a_stream_that_the_pod_refuses_is_sent_again_whatever_its_method() {
    for method in ["GET", "POST"] {
        let rig = Rig::start();
        let (pod, requests) = resetting_pod(&[Reason::REFUSED_STREAM; 2]).await;
        rig.configure(|route| route.backends = vec![pod]);
        assert_eq!(send(&rig, method).await, 200, "{method}");
        assert_eq!(requests.load(Ordering::SeqCst), 3, "{method}");
    }
}

/// A pod that refuses its first request, notifies `again` of the second, and responds with the length of that one's body.
async fn refusing_pod(again: Arc<tokio::sync::Notify>) -> SocketAddrV6 {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_refused, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_reset(Reason::REFUSED_STREAM);
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            again.notify_one();
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut length = 0;
                while let Some(Ok(bytes)) = body.data().await {
                    length += bytes.len();
                }
                let response = Response::builder().header("x-length", length);
                drop(respond.send_response(response.body(()).unwrap(), true));
            });
        }
    });
    address
}

#[tokio::test]
async fn a_refused_upload_of_which_nothing_was_read_is_sent_again_with_its_whole_body() {
    let rig = Rig::start();
    let again = Arc::new(tokio::sync::Notify::new());
    let pod = refusing_pod(Arc::clone(&again)).await;
    rig.configure(|route| route.backends = vec![pod]);
    let client = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (sender, connection) = h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    let request = Request::post("http://app.test/").body(()).unwrap();
    let (mut response, mut upload) = sender.send_request(request, false).unwrap();
    tokio::select! {
        () = again.notified() => {}
        early = &mut response => panic!("answered before the body: {early:?}"),
    }
    let body = Bytes::from(vec![b'x'; 10_000]);
    upload.send_data(body, true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["x-length"], "10000");
}

/// A pod whose first connection answers each request with GOAWAY and closes, with `last_stream`; its later ones answer
/// 200. The number of its connections.
async fn leaving_pod(last_stream: u32) -> (SocketAddrV6, Arc<AtomicUsize>) {
    let (listener, address) = listen().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        counted.fetch_add(1, Ordering::SeqCst);
        // An empty SETTINGS frame.
        stream
            .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
            .await
            .unwrap();
        read_headers(&mut stream).await;
        let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        goaway.extend(last_stream.to_be_bytes());
        goaway.extend([0; 4]);
        stream.write_all(&goaway).await.unwrap();
        stream.shutdown().await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    respond.send_response(Response::new(()), true).unwrap();
                }
            });
        }
    });
    (address, connections)
}

/// Reads frames until a HEADERS frame.
async fn read_headers(stream: &mut tokio::net::TcpStream) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == 1 {
            return;
        }
    }
}

#[tokio::test]
async fn a_request_above_the_last_stream_of_goaway_is_sent_again() {
    let rig = Rig::start();
    let (pod, connections) = leaving_pod(0).await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(send(&rig, "POST").await, 200);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_up_to_the_last_stream_of_goaway_is_not_sent_again() {
    let rig = Rig::start();
    let (pod, connections) = leaving_pod(1).await;
    rig.configure(|route| route.backends = vec![pod]);
    assert_eq!(send(&rig, "GET").await, 502);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_get_that_the_pod_has_read_is_not_sent_again() {
    let rig = Rig::start();
    let (listener, address) = listen().await;
    rig.configure(|route| route.backends = vec![address]);
    let mut client = rig.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (mut pod, _) = listener.accept().await.unwrap();
    assert!(pod.read(&mut [0; 1024]).await.unwrap() > 0);
    pod.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    assert_eq!(client.reply().await.body, "ok");
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(pod.read(&mut [0; 1024]).await.unwrap() > 0);
    let second = tokio::spawn(async move {
        let (mut pod, _) = listener.accept().await.unwrap();
        assert!(pod.read(&mut [0; 1024]).await.unwrap() > 0);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ntwice";
        pod.write_all(answer).await.unwrap();
    });
    drop(pod);
    assert_eq!(client.reply().await.status(), 502);
    second.abort();
}
